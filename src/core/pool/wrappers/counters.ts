import { checkByteCount, formatBytes } from '../../base/bytes.js'
import { showAsText } from '../../base/readable.js'

/** A quantity: its value now, its highest value, and the sum of all additions. */
export class Counter {
  /** the highest value of `current` */
  peak = 0
  /** the sum of all additions */
  total = 0
  /**
   * the value as last settled
   * @internal
   */
  value = 0

  /** Made by wrappers. `settle` is called before the value is read: it notes frees that the wrapper has not seen. */
  constructor(private readonly settle: () => void) {}

  /** the value now */
  get current(): number {
    this.settle()
    return this.value
  }

  /**
   * For wrappers: adds `amount`.
   * @internal
   */
  add(amount: number): void {
    this.value += amount
    this.total += amount
    if (this.value > this.peak) this.peak = this.value
  }

  /**
   * For wrappers: subtracts `amount`.
   * @internal
   */
  subtract(amount: number): void {
    this.value -= amount
  }

  /** One line for people, such as `Counter { 5 now, 7 at the peak, 12 in all }`; console.log shows it. */
  toString(): string {
    return `Counter { ${this.current} now, ${this.peak} at the peak, ${this.total} in all }`
  }

  /** The plain values that JSON.stringify writes. */
  toJSON(): object {
    const { current, peak, total } = this
    return { current, peak, total }
  }
}

/** The figures of one tag, or of another part of a pool; bytes are requested bytes. */
export interface TagStats {
  /** bytes of the live buffers */
  readonly requestedBytes: number
  /** the highest value of `requestedBytes` */
  readonly peakRequestedBytes: number
  /** how many buffers are live */
  readonly liveBuffers: number
  /** how many buffers were allocated in all */
  readonly allocations: number
  /** the limit of the part; Infinity without one */
  readonly maxPoolBytes: number
}

/** Counts of allocations and frees since the counters started at zero. */
export class Counters {
  /** requested bytes */
  readonly bytes: Counter
  /** buffers */
  readonly allocations: Counter

  /** Made by wrappers; see `Counter`. */
  constructor(
    settle: () => void,
    /**
     * the most bytes that may be live at a time
     * @internal
     */
    public maxPoolBytes = Infinity,
    /**
     * whose limit it is, for errors; undefined for the wrapper's own
     * @internal
     */
    readonly holder?: string,
    /**
     * counters of parts of the program, which count what these count
     * @internal
     */
    readonly scopes: ReadonlySet<Counters> | null = null,
  ) {
    this.bytes = new Counter(settle)
    this.allocations = new Counter(settle)
  }

  /**
   * For wrappers: whether `bytes` more are above the limit, once frees that were not seen are noted. Throws RangeError
   * or TypeError for a bad size above it; the upstream refuses every other bad size.
   * @internal
   */
  exceeds(bytes: number): boolean {
    if (typeof bytes === 'number' && !(bytes > this.maxPoolBytes - this.bytes.current)) return false
    checkByteCount(bytes, 'bytes')
    return true
  }

  /**
   * For wrappers: notes that a buffer of `bytes` was handed out.
   * @internal
   */
  noteAllocation(bytes: number): void {
    this.bytes.add(bytes)
    this.allocations.add(1)
    if (this.scopes !== null) for (const scope of this.scopes) scope.noteAllocation(bytes)
  }

  /**
   * For wrappers: notes that a buffer of `bytes`, or several of together `bytes`, were freed.
   * @internal
   */
  noteFree(bytes: number, count: number): void {
    this.bytes.subtract(bytes)
    this.allocations.subtract(count)
    if (this.scopes !== null) for (const scope of this.scopes) scope.noteFree(bytes, count)
  }

  /**
   * For wrappers: the counts as plain values.
   * @internal
   */
  stats(): TagStats {
    const { bytes, allocations, maxPoolBytes } = this
    return {
      requestedBytes: bytes.current,
      peakRequestedBytes: bytes.peak,
      liveBuffers: allocations.current,
      allocations: allocations.total,
      maxPoolBytes,
    }
  }

  /** One line for people, such as `Counters { 3 MiB in 2 buffers, at most 5 MiB }`; console.log shows it. */
  toString(): string {
    const { bytes, allocations } = this
    const buffers = `${allocations.current} ${allocations.current === 1 ? 'buffer' : 'buffers'}`
    const now = `${formatBytes(bytes.current)} in ${buffers}`
    return `${this.constructor.name} { ${now}, at most ${formatBytes(bytes.peak)} }`
  }

  /** The plain values that JSON.stringify writes. */
  toJSON(): object {
    const { bytes, allocations } = this
    return { bytes, allocations }
  }
}

showAsText(Counter, Counters)
