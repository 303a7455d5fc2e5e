import { PoolError } from '../../base/errors.js'
import type { Context } from '../../driver/context.js'
import type { Clocks } from '../../order/clocks.js'
import type { Backing, Heaps } from '../backing/backing.js'
import { checkRegistrable, RegistrableSegments } from '../backing/registrable-segments.js'
import { SegmentBacking } from '../backing/segment-backing.js'
import { sourceOf } from '../backing/segment-plan.js'
import { deviceSegments, managedSegments, type SegmentSource } from '../backing/segment-source.js'
import { VirtualBacking } from '../backing/virtual-backing.js'
import { virtualMemoryObstacle } from '../backing/virtual-memory.js'
import type { PoolConfig } from './options.js'

/** A configuration without 'auto'. Throws PoolError if the device has not the memory that it demands. */
export function decideBacking(context: Context, config: PoolConfig): PoolConfig {
  const { backing } = config
  if (backing === 'registrable') checkRegistrable(context)
  if (backing !== 'auto' && backing !== 'virtual') return config
  const obstacle = virtualMemoryObstacle(context)
  if (obstacle === null) return { ...config, backing: 'virtual' }
  if (backing === 'auto') return { ...config, backing: 'segments' }
  throw new PoolError(
    `backing 'virtual' is not possible here: ${obstacle}; use 'segments' or 'auto'`,
    'ERR_NOT_SUPPORTED',
  )
}

/** The backing for a pool of this configuration. Throws PoolError if the device cannot provide it. */
export function chooseBacking(clocks: Clocks, heaps: Heaps, config: PoolConfig): Backing {
  const { context } = clocks
  const { backing } = decideBacking(context, config)
  const inSegments = (source: SegmentSource) => new SegmentBacking(context, source, heaps, config)
  if (typeof backing === 'object') return inSegments('obtain' in backing ? backing : sourceOf(context, backing))
  if (backing === 'managed') return inSegments(managedSegments(context, config))
  if (backing === 'registrable') return inSegments(new RegistrableSegments(context))
  if (backing === 'virtual') return new VirtualBacking(clocks, heaps, config, config.deterministic)
  return inSegments(deviceSegments(context))
}
