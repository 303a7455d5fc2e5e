// cuda-mempool/processes: memory that several processes share.

export { DescriptorError } from '../core/base/errors.js'
export type { PassOptions } from '../core/libraries/descriptors.js'
export type { ImportedPool } from '../core/pool/driver-owned/imported-pool.js'
export type { InterprocessBuffer, OpenOptions } from '../core/pool/mapped/interprocess-buffer.js'
