// Finds the batches that had their core alone. On hosts that share cores, a core may be half as fast for seconds. A
// median over all batches then says more about the neighbours than about the code under measurement.

import { getHeapSpaceStatistics } from 'node:v8'
import { MiB } from '../src/core/base/bytes.js'
import { median } from './machine.js'

/**
 * A batch is quiet if the controls before and after it took at most this times the least control. Frequency steps
 * differ by less.
 */
const TOLERANCE = 1.15
/**
 * Steps of the control: about a third of a millisecond, much longer than an interrupt and shorter than most batches.
 */
const STEPS = 150_000
/** The control's result, kept so that the loop is not optimised away. */
export let kept = 0

/** The figures of a batch, with the slower of the controls before and after it. */
export interface Batch<Measured> {
  readonly measured: Measured
  readonly controlMs: number
  /** V8's young generation after the batch; beyond a few MiB its memory is no longer in a near cache */
  readonly youngMiB: number
}

export interface Figures {
  /** median of all batches, as `leastNs` is the least of all */
  readonly medianNs: number
  readonly leastNs: number
  /** median of the quiet batches; null if they are too few */
  readonly quietNs: number | null
  readonly quietBatches: number
  /** the largest young generation after a batch */
  readonly youngMiB: number
}

/** The core that a benchmark runs on. Call `figures` at the end, when the least control is known. */
export class Core {
  private readonly controls: number[] = []

  constructor() {
    // Short runs, so that the loop and its end are compiled before a control counts.
    for (let run = 0; run < 1000; run++) kept ^= arithmetic(1000)
  }

  batch<Measured>(run: () => Measured): Batch<Measured> {
    const before = this.controlMs()
    const measured = run()
    return { measured, controlMs: Math.max(before, this.controlMs()), youngMiB: youngMiB() }
  }

  /** Figures of the value that `nsOf` takes from each batch, rounded to `digits` decimals. */
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

  /** The times of the control, which show how quiet the host was. */
  control() {
    const rounded = (ms: number) => Number(ms.toFixed(3))
    return { leastMs: rounded(Math.min(...this.controls)), medianMs: rounded(median(this.controls)) }
  }

  /** The meaning of quiet, for the head of a table. */
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

/** The figures of quiet batches as text: `6.3 (41)`. */
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

/** Independent chains keep the whole core busy, so that any other user of the core slows them down. */
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
