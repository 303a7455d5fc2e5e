// The C side: OrtAllocators, whose functions are callbacks into this thread, and their registration. Sessions keep the
// address of theirs for as long as they live, also after it was unregistered. So an allocator is never freed: it has 64
// bytes of C's memory. All allocators of a registration share a few callbacks, since koffi has 8,192 in all.

import { PoolError } from '../core/base/errors.js'
import { type OnnxRuntimeLibrary, type Pointer, prototype } from './library.js'
import { closeAtEnd, noLongerOpen } from './serving-thread.js'

/** A function that ONNX Runtime calls. */
export type Callback = (...args: number[]) => unknown

/** The memory behind the callbacks. They never throw: koffi would give ONNX Runtime whatever lies in the register. */
export interface MemorySource {
  /**
   * The address of new memory, or 0; `stream` is the driver's handle, or null if ONNX Runtime names none. `callback` is
   * the function that ONNX Runtime has called.
   */
  allocate(bytes: number, stream: number | null, callback?: Callback): number
  /** The same for memory that a session keeps, such as weights. */
  reserve(bytes: number, callback?: Callback): number
  free(ptr: number): void
}

/** The memory that an allocator is for: 'Cpu', or 'Cuda' and the number of the device. */
export interface MemoryPlace {
  readonly kind: 'Cpu' | 'Cuda'
  readonly ordinal: number
}

/** The size of OrtAllocator, and the places of its members. */
const BYTES = 64
const AT = { version: 0, alloc: 8, free: 16, info: 24, reserve: 32, allocOnStream: 48 } as const
const INTERFACE = 23

const CUDA = 'CUDAExecutionProvider'
const DEVICE_ALLOCATOR = 0
const DEFAULT_MEMORY = 0
const WARNINGS = 2

const PROTOTYPES = {
  alloc: 'uint64_t cudaMempoolOrtAlloc(uint64_t self, size_t bytes)',
  free: 'void cudaMempoolOrtFree(uint64_t self, uint64_t ptr)',
  info: 'uint64_t cudaMempoolOrtInfo(uint64_t self)',
  allocOnStream: 'uint64_t cudaMempoolOrtAllocOnStream(uint64_t self, size_t bytes, uint64_t stream)',
  external: 'uint64_t cudaMempoolOrtExternalAlloc(size_t bytes)',
  externalFree: 'void cudaMempoolOrtExternalFree(uint64_t ptr)',
  externalEmpty: 'void cudaMempoolOrtExternalEmpty()',
} as const

/** The callbacks of OrtAllocators. ONNX Runtime passes the allocator, and each has a source of its own. */
class OrtAllocators {
  /** the allocators in use, and their sources in the same order; few, so they are searched */
  private readonly addresses: number[] = []
  private readonly sources: MemorySource[] = []
  private readonly handleOf: (stream: Pointer) => number
  private readonly pointers: readonly (readonly [at: number, pointer: bigint])[]

  constructor(
    private readonly library: OnnxRuntimeLibrary,
    /** the OrtMemoryInfo that sessions find the allocators by */
    info: Pointer,
    byStream: boolean,
  ) {
    this.handleOf = library.bind('SyncStream_GetHandle') as (stream: Pointer) => number
    const allocate: Callback = (self, bytes) => this.sourceOf(self)?.allocate(bytes, null, allocate) ?? 0
    const reserve: Callback = (self, bytes) => this.sourceOf(self)?.reserve(bytes, reserve) ?? 0
    const onStream: Callback = (self, bytes, stream) =>
      this.sourceOf(self)?.allocate(bytes, stream === 0 ? null : this.handleOf(stream), onStream) ?? 0
    this.pointers = [
      [AT.alloc, register(library, 'alloc', allocate)],
      [AT.free, register(library, 'free', (self, ptr) => this.sourceOf(self)?.free(ptr))],
      [AT.info, register(library, 'info', () => info)],
      [AT.reserve, register(library, 'alloc', reserve)],
      ...(byStream ? [[AT.allocOnStream, register(library, 'allocOnStream', onStream)] as const] : []),
    ]
  }

  /** The address of a new allocator for `source`. */
  add(source: MemorySource): number {
    const { koffi } = this.library
    const struct = Buffer.alloc(BYTES)
    struct.writeUInt32LE(INTERFACE, AT.version)
    for (const [at, pointer] of this.pointers) struct.writeBigUInt64LE(pointer, at)
    const memory = koffi.alloc('uint8_t', BYTES)
    koffi.encode(memory, koffi.array('uint8_t', BYTES), struct)
    const address = Number(koffi.address(memory))
    this.addresses.push(address)
    this.sources.push(source)
    return address
  }

  /** An allocator that no session has any more gets no source. */
  remove(address: number): void {
    const at = this.addresses.indexOf(address)
    this.addresses.splice(at, 1)
    this.sources.splice(at, 1)
  }

  private sourceOf(address: number): MemorySource | null {
    for (let at = this.addresses.length - 1; at >= 0; at--) if (this.addresses[at] === address) return this.sources[at]
    return null
  }
}

/** koffi passes whole numbers below 2^53 as numbers. Addresses and the sizes of memory are. */
function register(library: OnnxRuntimeLibrary, name: keyof typeof PROTOTYPES, callback: Callback): bigint {
  const { koffi } = library
  return koffi.register(callback, koffi.pointer(prototype(koffi, PROTOTYPES[name])))
}

/** Names and values of the CUDA provider's options for the external way: addresses as decimal numbers. */
function externalOptions(library: OnnxRuntimeLibrary, source: MemorySource): readonly [string[], string[]] {
  const allocate: Callback = bytes => source.allocate(bytes, null, allocate)
  const addresses = [
    register(library, 'external', allocate),
    register(library, 'externalFree', ptr => source.free(ptr)),
    register(library, 'externalEmpty', () => undefined),
  ]
  return [['gpu_external_alloc', 'gpu_external_free', 'gpu_external_empty_cache'], addresses.map(String)]
}

/** The environment by library; this package's reference to it stays until the process ends. */
const environments = new Map<string, Pointer>()

/** An allocator in the environment that all sessions of the process share. */
export class Registration {
  private readonly environment: Pointer
  private readonly info: Pointer
  /** null for the external way */
  private readonly allocators: OrtAllocators | null = null
  /** the allocator for all sessions without one of their own */
  private readonly general: number = 0

  /** Throws PoolError if ONNX Runtime refuses. `way` is how a CUDA provider asks; the CPU's knows no streams. */
  constructor(
    private readonly library: OnnxRuntimeLibrary,
    { kind, ordinal }: MemoryPlace,
    source: MemorySource,
    way: 'stream' | 'external' | 'plain',
  ) {
    this.environment = environments.get(library.path) ?? library.create('CreateEnv', WARNINGS, 'cuda-mempool')
    environments.set(library.path, this.environment)
    this.info = library.create('CreateMemoryInfo', kind, DEVICE_ALLOCATOR, ordinal, DEFAULT_MEMORY)
    if (way === 'external') this.registerExternal(source)
    else {
      this.allocators = new OrtAllocators(library, this.info, way === 'stream')
      this.general = this.allocators.add(source)
      library.check('RegisterAllocator', this.environment, this.general)
    }
    closeAtEnd(this)
  }

  /** Sessions that have the allocator keep it; later ones do not get it. */
  close(): void {
    noLongerOpen(this)
    this.library.check('UnregisterAllocator', this.environment, this.info)
  }

  /**
   * From now until `restore`, sessions that are made get an allocator of their own, for `source`. Returns its address.
   * Throws PoolError for the external way, which passes no allocator.
   */
  lend(source: MemorySource): number {
    if (this.allocators === null) {
      throw new PoolError(
        "createSession: way 'external' does not tell which session asks for memory; serve the pool with way 'stream'",
        'ERR_NOT_SUPPORTED',
      )
    }
    const own = this.allocators.add(source)
    this.library.check('RegisterAllocator', this.environment, own)
    return own
  }

  /** Sessions that are made from now on get the general allocator again. */
  restore(): void {
    this.library.check('RegisterAllocator', this.environment, this.general)
  }

  /** The session that has the allocator is released, and has freed all its memory. */
  drop(own: number): void {
    this.allocators!.remove(own)
  }

  /** The provider makes its own allocator, which calls back; it wants an arena's settings, and does not use them. */
  private registerExternal(source: MemorySource): void {
    const [keys, values] = externalOptions(this.library, source)
    const config = this.library.create('CreateArenaCfg', 0, -1, -1, -1)
    try {
      const { environment, info } = this
      const count = keys.length
      this.library.check('CreateAndRegisterAllocatorV2', environment, CUDA, info, config, keys, values, count)
    } finally {
      this.library.call('ReleaseArenaCfg', config)
    }
  }
}
