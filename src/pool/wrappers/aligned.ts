import type { Stream } from '../../order/stream.js'
import { MOST_ALIGNMENT_BYTES } from '../backing/backing.js'
import type { DeviceBuffer } from '../buffer.js'
import { checkAlignment } from '../caching/alignment.js'
import type { Pool } from '../pool.js'
import { Wrapper } from './wrapper.js'

/** Every pool aligns to 256 bytes anyway, and a caching pool is fastest without an explicit alignment. */
const ALWAYS_BYTES = 256

/**
 * Wraps `upstream` so that every address is a multiple of `alignment` bytes, a power of two of at most 2 MiB. If a
 * call asks for an alignment too, the stricter one holds. Throws RangeError for any other alignment.
 */
export function aligned(upstream: Pool, alignment: number): AlignedPool {
  checkAlignment(alignment, MOST_ALIGNMENT_BYTES)
  return new AlignedPool(upstream, alignment)
}

/** A pool whose addresses have a least alignment. Made by `aligned()`. */
export class AlignedPool extends Wrapper {
  constructor(
    upstream: Pool,
    /** least alignment of every address, in bytes */
    readonly alignment: number,
  ) {
    super(upstream)
  }

  /** As of `Pool`; `alignment` may ask for more. */
  override allocate(bytes: number, stream?: Stream, alignment?: number): DeviceBuffer {
    return super.allocate(bytes, stream, this.stricter(alignment))
  }

  /** As of `Pool`; `alignment` may ask for more. */
  override tryAllocate(bytes: number, stream?: Stream, alignment?: number): DeviceBuffer | null {
    return super.tryAllocate(bytes, stream, this.stricter(alignment))
  }

  private stricter(alignment = 1): number | undefined {
    checkAlignment(alignment, MOST_ALIGNMENT_BYTES)
    const strictest = Math.max(alignment, this.alignment)
    return strictest > ALWAYS_BYTES ? strictest : undefined
  }
}
