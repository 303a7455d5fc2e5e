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

/** The boxes of an icicle, each before those below it, from the left. */
export interface IcicleBoxes<Sum> {
  readonly boxes: readonly (Box & Sum)[]
  /** whether deeper calls are left out, because they would make too many boxes */
  readonly isCut: boolean
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
/** A box narrower than this share of the whole is left out: less than a pixel of most windows. */
export const LEAST_SHARE = 1 / 1500
/** Rows that would make more boxes than this are left out, as a browser shows each as an element. */
const MOST_BOXES = 50_000

/** A call among those of one caller: a hash of its texts (FNV-1a), short enough for the address of a page. */
export function keyOf({ label, place }: Pick<Step, 'label' | 'place'>): string {
  const text = `${label}\n${place}`
  let hash = 0x811c9dc5
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193)
  return (hash >>> 0).toString(36)
}

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

  /**
   * The boxes with their sums. `under` are keys of calls, each below the one before: all of them have a box, and boxes
   * below the last are as narrow as if it were the whole. Elsewhere boxes are at least `leastShare` of the whole.
   */
  boxes(under: readonly string[] = [], leastShare = LEAST_SHARE): IcicleBoxes<Sum> {
    const placed: { readonly at: number; readonly box: Box & Sum }[] = []
    const [all] = this.calls(this.paths, () => ALL)
    const whole = all === undefined ? 0 : this.weightOf(all.sum)
    // Row by row and not by recursion: a stack may be deeper than the room for calls.
    let row = whole > 0 ? [{ call: all, at: 0, least: whole * leastShare, isWanted: true }] : []
    for (let depth = 0; row.length > 0 && placed.length + row.length <= MOST_BOXES; depth++) {
      const below: typeof row = []
      for (const { call, at, least, isWanted } of row) {
        const { step, paths, sum } = call
        const [left, width] = [at / whole, this.weightOf(sum) / whole]
        placed.push({ at, box: { depth, left, width, label: step.label, place: step.place, ...sum } })
        let next = at
        for (const inner of this.calls(paths, ({ steps }) => steps[depth])) {
          const weight = this.weightOf(inner.sum)
          const isInner = isWanted && keyOf(inner.step) === under[depth]
          const isLast = isInner && depth + 1 === under.length
          if (weight >= least || (isInner && weight > 0)) {
            below.push({ call: inner, at: next, least: isLast ? weight * LEAST_SHARE : least, isWanted: isInner })
          }
          next += weight
        }
      }
      row = below
    }
    // By exact weights: of calls one below the other the outer comes first.
    placed.sort((a, b) => a.at - b.at || a.box.depth - b.box.depth)
    return { boxes: placed.map(({ box }) => box), isCut: row.length > 0 }
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
