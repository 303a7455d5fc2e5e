// cuda-mempool/profiling: ranges and names for profilers, and the types of reports of pools and errors.

export type { DeviceProcess, Fault, FaultSites, OutOfMemoryFigures, StreamMemory } from '../core/base/errors.js'
export { type Nvtx, type NvtxRange, openNvtx } from '../core/libraries/nvtx.js'
export type { LiveBlock } from '../core/pool/caching/reserving-pool.js'
export type { PoolSnapshot, SnapshotBlock } from '../core/pool/caching/snapshot.js'
export type { DebugCloseReport, DebugLiveBlock, DebugPool } from '../core/pool/debug/debug-pool.js'
export type { LiveGroup } from '../core/pool/labels.js'
export type { ReservedChange } from '../core/pool/reserved-watch.js'
export type { SleepProgress } from '../core/pool/sleep/sleep-options.js'
export type { Counter, Counters, TagStats } from '../core/pool/wrappers/counters.js'
export { type ProfiledOptions, type ProfiledPool, profiled } from '../core/pool/wrappers/profiled.js'
export type { SpillableStats } from '../core/pool/wrappers/spillable.js'
export type { StatisticsScope } from '../core/pool/wrappers/statistics.js'
