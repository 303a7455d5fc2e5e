// The memory of a GPU as the models of device allocators see it: cells, and threads that each do one operation on one
// cell at a time. A thread is a generator that yields before each operation, so that a schedule decides who goes
// next. Only the interleaving is modelled. Writes are visible at once, in program order, as if every fence were
// there.

/** The steps of a thread: it yields before each operation on shared memory. */
export type Steps<Result> = Generator<void, Result, void>

/** Cells of whole numbers below 2^53. */
export class Cells {
  readonly values: Float64Array

  constructor(count: number) {
    this.values = new Float64Array(count)
  }

  *load(at: number): Steps<number> {
    yield
    return this.values[at]
  }

  *store(at: number, value: number): Steps<void> {
    yield
    this.values[at] = value
  }

  *add(at: number, value: number): Steps<number> {
    yield
    const before = this.values[at]
    this.values[at] = before + value
    return before
  }

  *min(at: number, value: number): Steps<void> {
    yield
    this.values[at] = Math.min(this.values[at], value)
  }

  /** bits of a cell of at most 31 */
  *or(at: number, bits: number): Steps<number> {
    yield
    const before = this.values[at]
    this.values[at] = before | bits
    return before
  }

  *and(at: number, bits: number): Steps<number> {
    yield
    const before = this.values[at]
    this.values[at] = before & bits
    return before
  }

  *compareAndSwap(at: number, expected: number, value: number): Steps<number> {
    yield
    const before = this.values[at]
    if (before === expected) this.values[at] = value
    return before
  }
}
