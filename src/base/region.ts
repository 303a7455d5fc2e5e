const LINE_BYTES = 64
const PAGE_BYTES = 4096
/** The C library begins a large block so far behind a page, and Node's shared buffers are such blocks. */
const HEADER_BYTES = 16

/**
 * Hands out views of one buffer, one after another. Whoever asks for the same views in the same order gets the same
 * memory, so that code which does so in several threads is the layout of what they share. Without a buffer nothing can be
 * kept in the views, and `bytes` tells how large one must be.
 */
export class Region {
  /** handed out so far, and what is left out before */
  bytes = 0
  /** how far behind a page the buffer begins */
  private shift = 0

  constructor(private readonly buffer: ArrayBufferLike | null) {}

  /** The same of a large shared buffer, where what is handed out lies on cache lines and pages as is said below. */
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

  /** An int32 and a float64 view of the same bytes, which begin on a page. */
  both(doubles: number): { words: Int32Array; doubles: Float64Array } {
    this.align(PAGE_BYTES)
    const view = this.float64(doubles)
    return { words: new Int32Array(view.buffer, view.byteOffset, view.length * 2), doubles: view }
  }

  private measure(bytes: number): Int32Array {
    this.take(bytes)
    return new Int32Array(0)
  }

  /** Views begin on cache lines of their own, so that threads which write to different ones do not disturb each other. */
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
