// cuda-mempool/processes: memory that several processes share.

export { DescriptorError, KeepError } from '../core/base/errors.js'
export type { PassOptions } from '../core/libraries/descriptors.js'
export type { ImportedPool } from '../core/pool/driver-owned/imported-pool.js'
export type { InterprocessBuffer, OpenOptions } from '../core/pool/mapped/interprocess-buffer.js'
export type { KeptArray } from '../keep/directory.js'
export {
  type AttachOptions,
  type Filling,
  type IfFull,
  type Keep,
  type KeepEvent,
  type KeepOptions,
  openKeep,
  type PruneRule,
  type Region,
  type RegionInfo,
  type RegionOptions,
} from '../keep/keep.js'
export type { RegionBuffer } from '../keep/region-buffer.js'
