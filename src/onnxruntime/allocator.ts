// The C side: an OrtAllocator, whose functions are callbacks into this thread, and its registration. Sessions keep its
// address for as long as they live, also after it was unregistered. So an allocator is never freed: it has 64 bytes and
// a few callbacks.

import { type OnnxRuntimeLibrary, type Pointer, prototype } from './library.js'

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

/** An OrtAllocator, and the same callbacks for the provider's option `gpu_external_alloc`. */
class OrtAllocator {
  /** the struct; its address is what ONNX Runtime gets */
  readonly struct = Buffer.alloc(BYTES)

  private readonly handleOf: (stream: Pointer) => number

  constructor(
    private readonly library: OnnxRuntimeLibrary,
    private readonly source: MemorySource,
    /** the OrtMemoryInfo that sessions find the allocator by */
    info: Pointer,
    byStream: boolean,
  ) {
    this.handleOf = library.bind('SyncStream_GetHandle') as (stream: Pointer) => number
    const allocate: Callback = (_self, bytes) => source.allocate(bytes, null, allocate)
    const reserve: Callback = (_self, bytes) => source.reserve(bytes, reserve)
    this.struct.writeUInt32LE(INTERFACE, AT.version)
    this.struct.writeBigUInt64LE(this.register('alloc', allocate), AT.alloc)
    this.struct.writeBigUInt64LE(
      this.register('free', (_self, ptr) => source.free(ptr)),
      AT.free,
    )
    this.struct.writeBigUInt64LE(
      this.register('info', () => info),
      AT.info,
    )
    this.struct.writeBigUInt64LE(this.register('alloc', reserve), AT.reserve)
    if (byStream) {
      const onStream: Callback = (_self, bytes, stream) =>
        source.allocate(bytes, stream === 0 ? null : this.handleOf(stream), onStream)
      this.struct.writeBigUInt64LE(this.register('allocOnStream', onStream), AT.allocOnStream)
    }
  }

  /** Names and values of the CUDA provider's options for the external way: addresses as decimal numbers. */
  external(): { readonly keys: readonly string[]; readonly values: readonly string[] } {
    const allocate: Callback = bytes => this.source.allocate(bytes, null, allocate)
    const addresses = [
      this.register('external', allocate),
      this.register('externalFree', ptr => this.source.free(ptr)),
      this.register('externalEmpty', () => undefined),
    ]
    return {
      keys: ['gpu_external_alloc', 'gpu_external_free', 'gpu_external_empty_cache'],
      values: addresses.map(String),
    }
  }

  /** koffi passes whole numbers below 2^53 as numbers. Addresses and the sizes of memory are. */
  private register(name: keyof typeof PROTOTYPES, callback: Callback): bigint {
    const { koffi } = this.library
    return koffi.register(callback, koffi.pointer(prototype(koffi, PROTOTYPES[name])))
  }
}

/** The environment by library; this package's reference to it stays until the process ends. */
const environments = new Map<string, Pointer>()
/** the allocators that are never freed */
const kept: OrtAllocator[] = []

/** An allocator in the environment that all sessions of the process share. */
export class Registration {
  private readonly environment: Pointer
  private readonly info: Pointer

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
    const allocator = new OrtAllocator(library, source, this.info, way === 'stream')
    kept.push(allocator)
    if (way === 'external') this.registerExternal(allocator)
    else library.check('RegisterAllocator', this.environment, allocator.struct)
  }

  /** Sessions that have the allocator keep it; later ones do not get it. */
  close(): void {
    this.library.check('UnregisterAllocator', this.environment, this.info)
  }

  /** The provider makes its own allocator, which calls back; it wants an arena's settings, and does not use them. */
  private registerExternal(allocator: OrtAllocator): void {
    const { keys, values } = allocator.external()
    const config = this.library.create('CreateArenaCfg', 0, -1, -1, -1)
    try {
      const count = keys.length
      this.library.check('CreateAndRegisterAllocatorV2', this.environment, CUDA, this.info, config, keys, values, count)
    } finally {
      this.library.call('ReleaseArenaCfg', config)
    }
  }
}
