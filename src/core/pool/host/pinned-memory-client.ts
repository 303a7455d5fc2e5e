// The pinned memory of a shared host pool, as one thread sees it. The pool server has registered the segments. It
// sends them to a thread that meets an unknown address.

import { randomUUID } from 'node:crypto'
import { PoolError } from '../../base/errors.js'
import { openChannel, takeSent } from '../../threads/broadcast-channel.js'
import type { HostSegment, PinnedMemory } from '../backing/pinned-segments.js'

export class PinnedMemoryClient implements PinnedMemory {
  /** A segment in this list is not freed by the garbage collector, so its address cannot become another segment's. */
  private segments: readonly HostSegment[] = []
  /** the device address of a segment, by its host address */
  private readonly devicePtrs = new Map<number, number>()

  constructor(
    /** makes the pool server send all segments to a channel */
    private readonly request: (channel: string) => void,
    /** asks the pool server for the device address of a host address */
    private readonly devicePtrOf: (address: number) => number,
    readonly numaNode: number,
  ) {}

  /** The pool server finds pages and pins them. */
  async prepare(): Promise<null> {
    return null
  }

  growWith<R>(_prepared: Uint8Array | null, grow: () => R): R {
    return grow()
  }

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

  /** Forgets all segments, because some may no longer be pinned. */
  forget(): void {
    this.segments = []
    this.devicePtrs.clear()
  }

  segmentAt(address: number): HostSegment {
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
    if (sent === undefined) throw new PoolError('the memory is no longer pinned: its pool is closed', 'ERR_POOL_CLOSED')
    return sent
  }

  private find(address: number): HostSegment | undefined {
    return this.segments.find(({ address: base, bytes }) => address >= base && address < base + bytes.byteLength)
  }
}
