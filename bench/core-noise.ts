// Batches during which the core was ours alone. Where hosts share cores, a core is at times half as fast, for seconds; a median
// over all batches then says more about the neighbours than about what is measured.

import { getHeapSpaceStatistics } from 'node:v8'
import { MiB } from '../src/base/bytes.js'
import { median } from './machine.js'

/** How much slower than its least the control may be, before and after a batch that counts as quiet: steps of a clock's frequency differ by less. */
const TOLERANCE = 1.15
/** Of the control: a third of a millisecond or a bit more. Much longer than an interrupt, shorter than most batches. */
const STEPS = 150_000
/** What the control returned, so that it is not optimised away. */
export let kept = 0

/** What a batch measured, and the slower of the controls before and after it. */
export interface Batch<Measured> {
  readonly measured: Measured
  readonly controlMs: number
  /** what the engine's young generation has after it; what of it is written again and again is cold memory beyond a few MiB */
  readonly youngMiB: number
}

export interface Figures {
  /** of all batches, as the least is */
  readonly medianNs: number
  readonly leastNs: number
  /** median of the quiet batches; null where they are too few to say */
  readonly quietNs: number | null
  readonly quietBatches: number
  /** of the young generation, the most after a batch */
  readonly youngMiB: number
}

/** The core that a benchmark runs on. Figures are asked for at its end, when the least control is known. */
export class Core {
  private readonly controls: number[] = []

  constructor() {
    // Short runs, so that the compiler has seen the loop and its end before a control counts.
    for (let run = 0; run < 1000; run++) kept ^= arithmetic(1000)
  }

  batch<Measured>(run: () => Measured): Batch<Measured> {
    const before = this.controlMs()
    const measured = run()
    return { measured, controlMs: Math.max(before, this.controlMs()), youngMiB: youngMiB() }
  }

  /** Of what `nsOf` takes from each batch, rounded to so many digits behind the point. */
  figures<Measured>(
    batches: readonly Batch<Measured>[],
    digits: number,
    nsOf: (measured: Measured) => number,
  ): Figures {
    const rounded = (ns: number) => Number(ns.toFixed(digits))
    const all = batches.map(({ measured }) => nsOf(measured))
    const limit = TOLERANCE * Math.min(...this.controls)
    const quiet = all.filter((_, index) => batches[index].controlMs <= limit)
    return {
      medianNs: rounded(median(all)),
      leastNs: rounded(Math.min(...all)),
      quietNs: quiet.length < (all.length > 5 ? 5 : 3) ? null : rounded(median(quiet)),
      quietBatches: quiet.length,
      youngMiB: Math.max(...batches.map(batch => batch.youngMiB)),
    }
  }

  /** What the control took, from which one sees how quiet the host was. */
  control() {
    const rounded = (ms: number) => Number(ms.toFixed(3))
    return { leastMs: rounded(Math.min(...this.controls)), medianMs: rounded(median(this.controls)) }
  }

  /** What quiet means, for the head of a table. */
  legend(): string {
    const { leastMs, medianMs } = this.control()
    return `quiet: median of the batches whose control loops right before and after took at most ${TOLERANCE} times the least (${leastMs} ms, median ${medianMs}), and how many`
  }

  private controlMs(): number {
    const start = performance.now()
    kept ^= arithmetic(STEPS)
    const ms = performance.now() - start
    this.controls.push(ms)
    return ms
  }
}

/** Of quiet batches, for people: `6.3 (41)`. */
export function quietText(
  { quietNs, quietBatches }: Pick<Figures, 'quietNs' | 'quietBatches'>,
  digits: number,
): string {
  return `${quietNs?.toFixed(digits) ?? '–'} (${quietBatches})`
}

/** Both halves. */
function youngMiB(): number {
  return getHeapSpaceStatistics().find(({ space_name }) => space_name === 'new_space')!.space_size / MiB
}

/** Chains that do not depend on each other keep all of a core busy, so that whoever else uses it makes them slower. */
function arithmetic(steps: number): number {
  let [a, b, c, d, e, f] = [1, 2, 3, 4, 5, 6]
  for (let step = 0; step < steps; step++) {
    a = ((a ^ (a << 1)) + step) | 0
    b = ((b ^ (b << 2)) + step) | 0
    c = ((c ^ (c << 3)) + step) | 0
    d = ((d ^ (d << 4)) + step) | 0
    e = ((e ^ (e << 5)) + step) | 0
    f = ((f ^ (f << 6)) + step) | 0
  }
  return a ^ b ^ c ^ d ^ e ^ f
}
