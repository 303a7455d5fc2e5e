// The pinned memory of a host pool that several threads share, as one of them sees it: the pool server of the pool has registered
// the segments and sends them to whoever meets an address that he does not know.

import { randomUUID } from 'node:crypto'
import { PoolError } from '../../base/errors.js'
import { openChannel, takeSent } from '../../threads/broadcast-channel.js'
import type { PinnedMemory, SentSegment } from '../backing/pinned-segments.js'

export class PinnedViews implements PinnedMemory {
  /** As long as one is known here its memory is not freed, so that its address cannot become another one's. */
  private segments: readonly SentSegment[] = []
  /** by address of a segment, for the device's of it */
  private readonly devicePtrs = new Map<number, number>()

  constructor(
    /** has the pool server send all segments to a channel */
    private readonly request: (channel: string) => void,
    /** asks it for the device's address of a host address */
    private readonly devicePtrOf: (address: number) => number,
  ) {}

  bytesAt(address: number, byteLength: number): Uint8Array {
    const { bytes, address: base } = this.segmentAt(address)
    return bytes.subarray(address - base, address - base + byteLength)
  }

  devicePtrAt(address: number): number {
    const { address: base } = this.segmentAt(address)
    const known = this.devicePtrs.get(base)
    const start = known ?? this.devicePtrOf(base)
    if (known === undefined) this.devicePtrs.set(base, start)
    return start + address - base
  }

  /** Lets go of memory that is perhaps no longer pinned. */
  forget(): void {
    this.segments = []
    this.devicePtrs.clear()
  }

  private segmentAt(address: number): SentSegment {
    const known = this.find(address)
    if (known !== undefined) return known
    const channel = `cuda-mempool ${randomUUID()}`
    const end = openChannel(channel)
    try {
      this.request(channel)
      this.segments = takeSent(end)
      this.devicePtrs.clear()
    } finally {
      end.close()
    }
    const sent = this.find(address)
    if (sent === undefined) throw new PoolError('the memory is no longer pinned: its pool is closed')
    return sent
  }

  private find(address: number): SentSegment | undefined {
    return this.segments.find(({ address: base, bytes }) => address >= base && address < base + bytes.byteLength)
  }
}
