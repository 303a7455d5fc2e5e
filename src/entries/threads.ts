// cuda-mempool/threads: devices and pools that several threads share.

export { attachDevice, attachPool } from '../core/device/attach.js'
export type {
  SharedArenaDescriptor,
  SharedBlockDescriptor,
  SharedDevice,
  SharedHostDescriptor,
  SharedPoolDescriptor,
} from '../core/device/shared-pools.js'
export type { SharedEvent } from '../core/order/event.js'
export type { SharedStream } from '../core/order/stream.js'
export type { SharedArenaOptions, SharedArenaPool } from '../core/pool/arena/shared-arena-pool.js'
export type { SharedBlockPool } from '../core/pool/blocks/shared-block-pool.js'
export type { SharedGraphGroup } from '../core/pool/caching/captures/group-captures.js'
export type { SharedPoolOptions } from '../core/pool/caching/options.js'
export type { SharedHostPool } from '../core/pool/host/shared-host-pool.js'
export type { Reclaimed } from '../core/pool/shared/pool-server.js'
export type { SharedPool } from '../core/pool/shared/shared-pool.js'
export type { PoolThread, SharedLiveBlock } from '../core/pool/shared/shared-report.js'
export type { TransferredBuffer } from '../core/pool/transferred-buffer.js'
