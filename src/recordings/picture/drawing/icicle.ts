// The layout of an icicle: a box for each call, below the box of its caller, the widest from the left. The box of a
// call is as wide as the weight of all that happened in it and in the calls below it.

/** Where a box lies. */
export interface Box {
  readonly depth: number
  /** left edge and width as shares of the whole */
  readonly left: number
  readonly width: number
  readonly label: string
  /** where the call is, for the box's description */
  readonly place: string
}

/** One call of a path. Calls with the same `id` below the same caller are one box. */
export interface Step {
  readonly id: string
  readonly label: string
  readonly place: string
}

/** Paths that agree up to one call, and what they sum up to. */
interface Call<Sum> {
  readonly step: Step
  readonly paths: Path<Sum>[]
  readonly sum: Sum
}

interface Path<Sum> {
  readonly steps: readonly Step[]
  readonly addTo: (sum: Sum) => void
}

const ALL: Step = { id: '', label: 'all', place: '' }
/** A box narrower than this share of the whole is left out. */
const LEAST_SHARE = 1 / 1500
/** Rows that would make more boxes than this are left out, as a browser shows each as an element. */
const MOST_BOXES = 50_000

export class Icicle<Sum extends object> {
  private readonly paths: Path<Sum>[] = []

  constructor(
    private readonly newSum: () => Sum,
    private readonly weightOf: (sum: Sum) => number,
  ) {}

  /** Adds something to the sums of all calls on its path, the outermost first. */
  add(steps: readonly Step[], addTo: (sum: Sum) => void): void {
    this.paths.push({ steps, addTo })
  }

  /** The boxes with their sums, each before those below it. */
  boxes(): (Box & Sum)[] {
    const boxes: (Box & Sum)[] = []
    const [all] = this.calls(this.paths, () => ALL)
    const whole = all === undefined ? 0 : this.weightOf(all.sum)
    // Row by row and not by recursion: a stack may be deeper than the room for calls.
    let row = whole > 0 ? [{ call: all, left: 0 }] : []
    for (let depth = 0; row.length > 0 && boxes.length + row.length <= MOST_BOXES; depth++) {
      const below: typeof row = []
      for (const { call, left } of row) {
        const { step, paths, sum } = call
        boxes.push({ depth, left, width: this.weightOf(sum) / whole, label: step.label, place: step.place, ...sum })
        let at = left
        for (const inner of this.calls(paths, ({ steps }) => steps[depth])) {
          const width = this.weightOf(inner.sum) / whole
          if (width >= LEAST_SHARE) below.push({ call: inner, left: at })
          at += width
        }
      }
      row = below
    }
    return boxes.sort((a, b) => a.left - b.left || a.depth - b.depth)
  }

  /** The calls that paths make next, the widest first. */
  private calls(paths: readonly Path<Sum>[], stepOf: (path: Path<Sum>) => Step | undefined): Call<Sum>[] {
    const calls = new Map<string, Call<Sum>>()
    for (const path of paths) {
      const step = stepOf(path)
      if (step === undefined) continue
      let call = calls.get(step.id)
      if (call === undefined) {
        call = { step, paths: [], sum: this.newSum() }
        calls.set(step.id, call)
      }
      call.paths.push(path)
      path.addTo(call.sum)
    }
    return [...calls.values()].sort((a, b) => this.weightOf(b.sum) - this.weightOf(a.sum))
  }
}
