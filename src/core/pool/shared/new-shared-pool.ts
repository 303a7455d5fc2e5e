import { MAX_UNITS, UNIT_BYTES } from '../../heap/size-classes.js'
import type { Clocks } from '../../order/clocks.js'
import { openProcessBarrier } from '../../threads/process-barrier.js'
import { granulesOfRange } from '../backing/virtual-backing.js'
import { decideBacking } from '../caching/choose-backing.js'
import { type PoolConfig, parseSharedPoolOptions, type SharedPoolOptions } from '../caching/options.js'
import { describePool, MOST_RANGES, type SharedPoolState, type SharedRoom, sharedStateBytes } from './shared-state.js'

/** The state of a new shared pool, before its pool server has begun. Other threads reach the device by `device`. */
export function newSharedPool<D>(
  clocks: Clocks,
  options: SharedPoolOptions,
  deviceBytes: number,
  device: D,
): SharedPoolState<D> {
  const config = parseSharedPoolOptions(options, deviceBytes, clocks.context.memoryLimit)
  return newState('caching', clocks, config, deviceBytes, device)
}

/**
 * The same for each kind of pool that is built on a shared pool. Its doorbell may be replaced by one that several
 * pools share.
 */
export function newState<D, K extends SharedPoolState['kind']>(
  kind: K,
  clocks: Clocks,
  wanted: PoolConfig,
  deviceBytes: number,
  device: D,
): SharedPoolState<D> & { readonly kind: K } {
  // Decided here, once: the driver could answer the pool server differently, and the layout would not fit.
  const config = decideBacking(clocks.context, wanted)
  const room = roomFor(clocks, config, deviceBytes)
  const buffer = new SharedArrayBuffer(sharedStateBytes(room))
  return { ...describePool(buffer, device), kind, room, config, doorbell: new SharedArrayBuffer(4) }
}

function roomFor({ context }: Clocks, { backing }: PoolConfig, deviceBytes: number): SharedRoom {
  const fixed = { ranges: MOST_RANGES, isFenced: openProcessBarrier() === null }
  if (backing !== 'virtual') return { ...fixed, granules: 0, granuleUnits: MAX_UNITS }
  const granuleBytes = context.activate().cuMemGetAllocationGranularity(context.device)
  return { ...fixed, granules: granulesOfRange(deviceBytes, granuleBytes), granuleUnits: granuleBytes / UNIT_BYTES }
}
