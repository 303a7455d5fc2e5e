// The stream caches of a block pool, and its blocks. Their hot methods repeat those of the caching pool, because V8
// collects feedback by function: one that meets the objects of both pools makes both slower (docs/internals/v8.md).

import type { RecordTable } from '../../heap/records.js'
import { MAX_UNITS } from '../../heap/size-classes.js'
import type { Stream } from '../../order/stream.js'
import type { DeviceBuffer } from '../buffer.js'
import { Block, type BlockOwner } from '../caching/block.js'
import { StreamCaches } from '../caching/stream-caches.js'

export class FixedBlock extends Block {
  override free(buffer: DeviceBuffer, stream?: Stream): void {
    if (this.wrapper === null) this.pool.releaseBlock(this, buffer.tag, stream)
    else this.wrapper.release(buffer, stream)
  }
}

/** Keeps all that streams free: blocks are alike, so another stream finds them there. */
export class BlockCaches extends StreamCaches {
  constructor(records: RecordTable, pool: BlockOwner) {
    super(records, MAX_UNITS, pool, true, true)
  }

  override put(block: Block): boolean {
    const stack = block.stack!
    const below = stack.top
    block.below = below
    block.height = below.height + 1
    stack.top = block
    stack.totals.cached += block.units
    return true
  }

  protected override blockFor(record: number): Block {
    return new FixedBlock(this.pool, record)
  }
}
