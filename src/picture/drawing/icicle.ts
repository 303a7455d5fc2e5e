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

interface Node<Sum> {
  readonly step: Step
  readonly children: Map<string, Node<Sum>>
  readonly sum: Sum
}

/** A box narrower than this share of the whole is left out. */
const LEAST_SHARE = 1 / 1500

export class Icicle<Sum extends object> {
  private readonly root: Node<Sum>

  constructor(
    private readonly newSum: () => Sum,
    private readonly weightOf: (sum: Sum) => number,
  ) {
    this.root = this.newNode({ id: '', label: 'all', place: '' })
  }

  /** Adds something to the sums of all calls on its path, the outermost first. */
  add(path: Iterable<Step>, addTo: (sum: Sum) => void): void {
    let node = this.root
    addTo(node.sum)
    for (const step of path) {
      let child = node.children.get(step.id)
      if (child === undefined) {
        child = this.newNode(step)
        node.children.set(step.id, child)
      }
      node = child
      addTo(node.sum)
    }
  }

  /** The boxes with their sums, each before those below it. */
  boxes(): (Box & Sum)[] {
    const boxes: (Box & Sum)[] = []
    const whole = this.weightOf(this.root.sum)
    const place = ({ step, children, sum }: Node<Sum>, depth: number, left: number) => {
      const width = this.weightOf(sum) / whole
      if (width < LEAST_SHARE) return
      boxes.push({ depth, left, width, label: step.label, place: step.place, ...sum })
      let at = left
      for (const child of [...children.values()].sort((a, b) => this.weightOf(b.sum) - this.weightOf(a.sum))) {
        place(child, depth + 1, at)
        at += this.weightOf(child.sum) / whole
      }
    }
    if (whole > 0) place(this.root, 0, 0)
    return boxes
  }

  private newNode(step: Step): Node<Sum> {
    return { step, children: new Map(), sum: this.newSum() }
  }
}
