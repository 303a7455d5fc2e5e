// Typed arrays laid out one after another in one buffer: the layout of memory that threads share.

const LINE_BYTES = 64
const PAGE_BYTES = 4096
/** The C library begins a large block this far behind a page boundary. Shared buffers of Node are such blocks. */
const HEADER_BYTES = 16

/**
 * Returns views of one buffer, one after another. The same requests in the same order get the same memory. So code
 * that runs in several threads defines the layout of their shared memory. Without a buffer the views are empty, and
 * `bytes` ends as the size that the buffer needs.
 */
export class Region {
  /** offset of the next view: the bytes used so far, with padding */
  bytes = 0
  /** distance from a page boundary to the begin of the buffer */
  private shift = 0

  constructor(private readonly buffer: ArrayBufferLike | null) {}

  /** A region of a large shared buffer, in which views are aligned to real cache lines and pages. */
  static ofPages(buffer: SharedArrayBuffer | null): Region {
    const region = new Region(buffer)
    region.bytes = PAGE_BYTES - HEADER_BYTES
    region.shift = HEADER_BYTES
    return region
  }

  int32(length: number): Int32Array {
    return this.buffer === null ? this.measure(length * 4) : new Int32Array(this.buffer, this.take(length * 4), length)
  }

  float64(length: number): Float64Array {
    if (this.buffer !== null) return new Float64Array(this.buffer, this.take(length * 8), length)
    this.take(length * 8)
    return new Float64Array(0)
  }

  /** An int32 and a float64 view of the same bytes, which begin at a page boundary. */
  both(doubles: number): { words: Int32Array; doubles: Float64Array } {
    this.align(PAGE_BYTES)
    const view = this.float64(doubles)
    return { words: new Int32Array(view.buffer, view.byteOffset, view.length * 2), doubles: view }
  }

  private measure(bytes: number): Int32Array {
    this.take(bytes)
    return new Int32Array(0)
  }

  /** Each view begins at a cache line, which avoids false sharing between threads. */
  private take(bytes: number): number {
    this.align(LINE_BYTES)
    const start = this.bytes
    this.bytes += bytes
    return start
  }

  private align(bytes: number): void {
    this.bytes = Math.ceil((this.bytes + this.shift) / bytes) * bytes - this.shift
  }
}
