// An allocator in the environment that all sessions of the process share.

import type { MemorySource } from './allocator.js'
import { OrtAllocator } from './allocator.js'
import type { OnnxRuntimeLibrary, Pointer } from './library.js'

/** The memory that an allocator is for: 'Cpu', or 'Cuda' and the number of the device. */
export interface MemoryPlace {
  readonly kind: 'Cpu' | 'Cuda'
  readonly ordinal: number
}

const CUDA = 'CUDAExecutionProvider'
const DEVICE_ALLOCATOR = 0
const DEFAULT_MEMORY = 0
const WARNINGS = 2

/** The environment by library; this package's reference to it stays until the process ends. */
const environments = new Map<string, Pointer>()
/** Sessions may call an allocator until the process ends. */
const kept: OrtAllocator[] = []

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
