// The memory of a GPU as the models of device allocators see it: cells, and threads that each do one operation on one
// cell at a time. A thread is a generator that yields before each operation, so that a schedule decides who goes
// next. An operation whose result its thread uses is done in its step. One without a result is only sent in its step:
// it may arrive later, after operations of its thread on other cells. It arrives at the latest at its thread's next
// fence or use of that cell.

/** The steps of a thread: it yields before each operation on shared memory. */
export type Steps<Result> = Generator<void, Result, void>

/** An operation without a result. */
interface Sent {
  /** how many were sent before */
  readonly number: number
  readonly thread: number
  readonly at: number
  readonly change: (before: number) => number
}

/** Decides when operations without a result arrive. */
export interface Arrivals {
  /** Whether an operation stays behind when it is sent. */
  delays(number: number): boolean
  /** A thread uses a cell, and would see whether this operation of another thread has arrived. */
  noticed(number: number): void
}

const AT_ONCE: Arrivals = { delays: () => false, noticed: () => {} }
const NO_THREAD = -1

/** Cells of whole numbers below 2^53. */
export class Cells {
  readonly values: Float64Array
  arrivals = AT_ONCE
  /** the thread whose step it is; NO_THREAD before and after a run, when all operations arrive at once */
  running = NO_THREAD
  private sentCount = 0
  /** operations that have not arrived */
  private late: Sent[] = []
  /** operations that arrived, and were neither fenced nor seen since: in another schedule they could still be late */
  private unfenced: Sent[] = []
  /** threads that sent an operation since their last fence; and threads that then did another */
  private readonly sending = new Set<number>()
  private readonly exposed = new Set<number>()

  constructor(count: number) {
    this.values = new Float64Array(count)
  }

  *load(at: number): Steps<number> {
    yield
    this.access(at)
    return this.values[at]
  }

  *add(at: number, value: number): Steps<number> {
    yield
    return this.exchange(at, before => before + value)
  }

  /** bits of a cell of at most 31 */
  *or(at: number, bits: number): Steps<number> {
    yield
    return this.exchange(at, before => before | bits)
  }

  *and(at: number, bits: number): Steps<number> {
    yield
    return this.exchange(at, before => before & bits)
  }

  *compareAndSwap(at: number, expected: number, value: number): Steps<number> {
    yield
    return this.exchange(at, before => (before === expected ? value : before))
  }

  /** An atomic operation without a result. */
  *reduce(at: number, change: (before: number) => number): Steps<void> {
    yield
    this.send(at, change)
    this.sending.add(this.running)
  }

  /** The same for an addition. */
  *reduceAdd(at: number, value: number): Steps<void> {
    yield* this.reduce(at, before => before + value)
  }

  *store(at: number, value: number): Steps<void> {
    yield* this.reduce(at, () => value)
  }

  /** The operations of the running thread arrive before it goes on. */
  *fence(): Steps<void> {
    // Until it ends, others may see what the thread did after a late operation.
    if (this.exposed.has(this.running)) yield
    this.arrive(this.running)
    this.settle(sent => sent.thread === this.running)
    this.sending.delete(this.running)
    this.exposed.delete(this.running)
  }

  /** Late operations arrive: of all threads or one, on all cells or one. */
  arrive(ofThread?: number, toCell?: number): void {
    if (this.late.length === 0) return
    const stays: Sent[] = []
    for (const sent of this.late) {
      const { thread, at, change } = sent
      if (thread !== (ofThread ?? thread) || at !== (toCell ?? at)) stays.push(sent)
      else this.values[at] = change(this.values[at])
    }
    this.late = stays
  }

  /** The run is over: everything arrives. */
  end(): void {
    this.running = NO_THREAD
    this.arrive()
  }

  /** One of the late operations arrives, and those of its thread on its cell. */
  arriveAny(below: (count: number) => number): void {
    if (this.late.length === 0) return
    const { thread, at } = this.late[below(this.late.length)]
    this.arrive(thread, at)
  }

  // As parts of a step:

  /** The value for the running thread. It sees its own stores to the cell, which may still be late for others. */
  read(at: number): number {
    this.notice(at)
    const own = this.late.filter(sent => sent.thread === this.running && sent.at === at)
    return own.reduce((value, { change }) => change(value), this.values[at])
  }

  write(at: number, value: number): void {
    this.send(at, () => value)
  }

  exchange(at: number, change: (before: number) => number): number {
    this.access(at)
    const before = this.values[at]
    this.values[at] = change(before)
    return before
  }

  private send(at: number, change: (before: number) => number): void {
    const { running } = this
    const sent = { number: this.sentCount++, thread: running, at, change }
    this.notice(at)
    const isBehind = this.late.some(({ thread, at: cell }) => thread === running && cell === at)
    if (isBehind || (running !== NO_THREAD && this.arrivals.delays(sent.number))) {
      this.late.push(sent)
      return
    }
    this.values[at] = change(this.values[at])
    if (running !== NO_THREAD) this.unfenced.push(sent)
  }

  private access(at: number): void {
    if (this.running === NO_THREAD) return
    this.arrive(this.running, at)
    this.notice(at)
    this.settle(sent => sent.thread === this.running && sent.at === at)
  }

  /** Tells of the operations of other threads on a cell. If they have arrived, they are seen now. */
  private notice(at: number): void {
    if (this.sending.has(this.running)) this.exposed.add(this.running)
    const isOther = (sent: Sent) => sent.at === at && sent.thread !== this.running
    for (const sent of this.late) if (isOther(sent)) this.arrivals.noticed(sent.number)
    for (const sent of this.unfenced) if (isOther(sent)) this.arrivals.noticed(sent.number)
    this.settle(isOther)
  }

  private settle(which: (sent: Sent) => boolean): void {
    if (this.unfenced.some(which)) this.unfenced = this.unfenced.filter(sent => !which(sent))
  }
}
