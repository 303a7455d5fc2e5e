// cuda-mempool/processes: memory that several processes share.

export { DescriptorError, KeepError, type KeepErrorCode } from '../core/base/errors.js'
export type { IfFull, KeepEvent, PruneRule, RegionInfo, RegionState } from '../core/keeper/region.js'
export type { PassOptions } from '../core/libraries/descriptors.js'
export type { ImportedPool } from '../core/pool/driver-owned/imported-pool.js'
export type { InterprocessBuffer, OpenOptions } from '../core/pool/mapped/interprocess-buffer.js'
export type { KeptArray } from '../keep/directory.js'
export type { Filling } from '../keep/filling.js'
export { type Keep, openKeep } from '../keep/keep.js'
export type { KeptFile } from '../keep/kept-file.js'
export type { AttachOptions, KeepOptions, RegionOptions } from '../keep/options.js'
export type { Region } from '../keep/region.js'
export type { RegionBuffer } from '../keep/region-buffer.js'
