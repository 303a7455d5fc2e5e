// Stand-ins for the library of ONNX Runtime and for its sessions. The library keeps the allocator that was registered
// last, and a session calls its C functions: `run` in threads of libuv, `runSync` in this one.

import { loadKoffi } from '../core/libraries/koffi.js'
import { type OnnxRuntimeLibrary, type Pointer, prototype } from './library.js'

const AT = { alloc: 8, free: 16, info: 24 } as const
const WEIGHTS_BYTES = 4096

type Call = ((...args: number[]) => unknown) & { async(...args: unknown[]): void }

/** Accepts all calls of a service. */
export class StandInLibrary {
  readonly version = '1.29.0'
  readonly path = '/nowhere'
  readonly koffi = loadKoffi()
  /** the allocator for new sessions, or 0 */
  registered: Pointer = 0

  check(name: string, _environment: Pointer, argument: Pointer): void {
    if (name === 'RegisterAllocator') this.registered = argument
    if (name === 'UnregisterAllocator') this.registered = 0
  }

  failure(): null {
    return null
  }

  bind(): () => number {
    return () => 0
  }

  create(): number {
    return 1
  }

  call(): number {
    return 0
  }

  asLibrary(): OnnxRuntimeLibrary {
    return this as unknown as OnnxRuntimeLibrary
  }
}

/** The requests of a run: the bytes of each block. It frees all blocks at its end. */
export interface Requests {
  readonly sizes: readonly number[]
  /** called in the middle of the run, when it holds all its blocks */
  readonly meanwhile?: () => void
}

/** A session that asks the allocator that was registered when it was made, and holds one block of weights. */
export class StandInSession {
  private readonly alloc: Call
  private readonly freeing: Call
  private readonly self: number
  private readonly weights: number

  constructor({ koffi, registered }: StandInLibrary) {
    this.self = Number(registered)
    const bound = (at: number, text: string) =>
      koffi.decode(koffi.decode(BigInt(registered), at, 'void *'), prototype(koffi, text)) as Call
    this.alloc = bound(AT.alloc, 'uint64_t cudaMempoolOrtAlloc(uint64_t self, size_t bytes)')
    this.freeing = bound(AT.free, 'void cudaMempoolOrtFree(uint64_t self, uint64_t ptr)')
    this.weights = this.alloc(this.self, WEIGHTS_BYTES) as number
  }

  /** Resolves to the addresses. Rejects, as ONNX Runtime does, for a request that is answered by 0. */
  async run({ sizes, meanwhile }: Requests): Promise<number[]> {
    const held: number[] = []
    for (const bytes of sizes) held.push((await inAnotherThread(this.alloc, this.self, bytes)) as number)
    meanwhile?.()
    for (const ptr of held.toReversed()) if (ptr !== 0) await inAnotherThread(this.freeing, this.self, ptr)
    return this.checked(held)
  }

  runSync({ sizes, meanwhile }: Requests): number[] {
    const held = sizes.map(bytes => this.alloc(this.self, bytes) as number)
    meanwhile?.()
    for (const ptr of held.toReversed()) if (ptr !== 0) this.freeing(this.self, ptr)
    return this.checked(held)
  }

  async release(): Promise<void> {
    this.freeing(this.self, this.weights)
  }

  private checked(held: number[]): number[] {
    if (held.includes(0)) throw new Error('Failed to allocate memory')
    return held
  }
}

/** Calls `Info` of an allocator in a new thread, which ends as soon as it has the answer. */
export async function askFromNewThread({ koffi }: StandInLibrary, allocator: Pointer): Promise<void> {
  const library = koffi.load(null)
  const create = library.func('int pthread_create(_Out_ uint64_t *out, void *attributes, uint64_t call, uint64_t of)')
  const join = library.func('int pthread_join(uint64_t thread, uint64_t result)') as unknown as Call
  const thread: Pointer[] = [0]
  create(thread, null, koffi.decode(BigInt(allocator), AT.info, 'uint64_t'), allocator)
  await inAnotherThread(join, Number(thread[0]), 0)
}

function inAnotherThread(call: Call, ...args: number[]): Promise<unknown> {
  return new Promise((resolve, reject) => {
    call.async(...args, (error: Error | null, result: unknown) => (error ? reject(error) : resolve(result)))
  })
}
