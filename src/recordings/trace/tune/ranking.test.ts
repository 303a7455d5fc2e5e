import assert from 'node:assert/strict'
import { test } from 'node:test'
import { GiB } from '../../../core/base/bytes.js'
import { Random } from '../../../core/base/random.js'
import { advised, type Comparison, combined, ranked, takenBytes } from './ranking.js'
import type { TuneRun } from './tune-report.js'

/** A run with sizes in GiB; `within` has failures, retries, and what is reserved there. */
function run(settings: string, peak: number, within: readonly [number, number, number], least = 1): TuneRun {
  const [failures, retries, reserved] = within
  const driver = { deviceCalls: 1, modelledDeviceSeconds: 0.001, laterDeviceSeconds: 0 }
  const at = { failures, retries, peakReservedBytes: reserved * GiB, ...driver }
  return {
    settings,
    peakReservedBytes: peak * GiB,
    leastCapacityBytes: least * GiB,
    leastCapacityRetries: 0,
    atCapacity: null,
    within: at,
    ...driver,
  }
}

const free = (before: TuneRun): Comparison => ({ before, isLimited: false, isAsked: false, isOwnLimit: false })
const failed = (before: TuneRun): Comparison => ({ before, isLimited: true, isAsked: false, isOwnLimit: false })
const asked = (before: TuneRun): Comparison => ({ before, isLimited: true, isAsked: true, isOwnLimit: false })
const advice = (comparison: Comparison, ...others: TuneRun[]) =>
  advised(ranked([comparison.before, ...others], comparison), comparison).map(({ settings }) => settings)

test('without a capacity, what is reserved without a limit decides, not the least capacity', () => {
  const before = run('', 12.4, [0, 0, 12.4], 5.2)
  const expandable = run('expandable_segments:True', 5.1, [0, 0, 5.1], 5.06)
  const split = run('max_split_size_mb:64', 18.9, [0, 4, 12.4], 4.9)
  assert.deepEqual(advice(free(before), split, expandable), ['expandable_segments:True'])
})

test('of settings that reserve as much, fewer retries win, and then the least capacity', () => {
  const before = run('', 6, [0, 3, 4], 2)
  const one = run('a', 6, [0, 1, 4], 2)
  const none = run('b', 6, [0, 0, 4], 2)
  assert.deepEqual(advice(free(before), one, none), ['b'])
  assert.deepEqual(advice(free(before), run('c', 6, [0, 3, 4], 1.9)), ['c'])
  assert.deepEqual(advice(free(before), run('d', 6, [0, 3, 4], 2), run('e', 5.99, [0, 3, 4], 2)), [], 'no gain')
})

test('within a capacity no failure comes first, then the fewest retries, then what is reserved', () => {
  const before = run('', 6, [2, 9, 4])
  const retries = run('a', 5, [0, 2, 3])
  const calm = run('b', 5, [0, 0, 3.9])
  const small = run('c', 5, [0, 0, 3])
  const fails = run('d', 3, [1, 0, 2])
  assert.deepEqual(
    ranked([before, fails, retries, calm, small], failed(before)).map(({ settings }) => settings),
    ['c', 'b', 'a', 'd', ''],
  )
})

test('of settings that serve all, those that reserve more than today without a limit come last', () => {
  const before = run('', 3, [1, 9, 2])
  const split = run('max_split_size_mb:64', 9, [0, 0, 2])
  const expandable = run('expandable_segments:True', 2.5, [0, 4, 2])
  assert.deepEqual(advice(failed(before), split, expandable), ['expandable_segments:True', 'max_split_size_mb:64'])
})

test('a setting that still fails is advised unless it reserves more than today', () => {
  const before = run('', 2.7, [17, 24, 2])
  const split = run('max_split_size_mb:64', 4.1, [6, 16, 2])
  const expandable = run('expandable_segments:True', 2.2, [7, 18, 2])
  assert.deepEqual(advice(failed(before), split, expandable), ['expandable_segments:True'])
  assert.deepEqual(advice(failed(before), split), [])
  assert.deepEqual(advice(failed(before), run('all', 4.1, [0, 16, 2])), ['all'], 'it alone serves all')
  assert.deepEqual(advice(failed(before), run('fewer retries', 2.7, [17, 3, 2])), [], 'a program dies all the same')
})

test('under a limit of the program, a setting that needs less is advised though it still fails there', () => {
  const before = run('', 5, [1, 2, 3.7], 4.36)
  const expandable = run('expandable_segments:True', 4, [1, 2, 3.7], 3.85)
  const ownLimit = { ...failed(before), isOwnLimit: true }
  assert.deepEqual(advice(ownLimit, expandable), ['expandable_segments:True'])
  assert.deepEqual(advice(failed(before), expandable), [], 'the device has no more')
  assert.deepEqual(advice(ownLimit, run('a', 5, [1, 2, 3.7], 4.35)), [], 'it needs as much')
})

test('a setting with which requests fail that were served is never advised', () => {
  assert.deepEqual(advice(free(run('', 3.4, [0, 0, 3])), run('a', 3.3, [2, 0, 3])), [])
  assert.deepEqual(advice(asked(run('', 3.4, [0, 0, 3])), run('a', 3.3, [2, 0, 2])), [])
})

test('below 1 % more, or more only within a capacity that holds it, counts as no more', () => {
  const before = run('', 2.4, [0, 2, 1.02])
  const expandable = run('expandable_segments:True', 1.04, [0, 0, 1.04])
  assert.deepEqual(advice(asked(before), expandable), ['expandable_segments:True'])
  assert.deepEqual(advice(free(before), run('a', 2.41, [0, 0, 1.02])), ['a'])
  assert.deepEqual(advice(asked(before), run('a', 2.5, [0, 0, 1.04])), [], 'more in both')
})

test('over several recordings, one without a known capacity counts as replayed without a limit', () => {
  const full = run('', 4, [1, 2, 3])
  const calm = { ...run('', 3.5, [0, 0, 0]), within: null }
  const { within } = combined('', [full, calm])
  assert.deepEqual([within!.failures, within!.retries, within!.peakReservedBytes], [1, 2, 3.5 * GiB])
  assert.equal(combined('', [calm, calm]).within, null)
})

test('whatever the figures, what comes first gains something and does not reserve more than today', () => {
  const random = new Random(7)
  const any = (settings: string) => {
    const [peak, reserved] = [1 + random.below(8), 1 + random.below(4)]
    return run(settings, peak, [random.below(3), random.below(3), reserved], 1 + random.below(4))
  }
  let count = 0
  for (let round = 0; round < 2000; round++) {
    const before = any('')
    for (const comparison of [free(before), failed(before), asked(before)]) {
      const others = ['a', 'expandable_segments:True', 'c', 'expandable_segments:True,d'].map(any)
      const first = advised(ranked([before, ...others], comparison), comparison).at(0)
      if (first === undefined) continue
      count++
      const [failures, failuresBefore] = [first.within!.failures, before.within!.failures]
      const servesAlone = comparison.isLimited && failures === 0 && failuresBefore > 0
      const reserves = (isLimited: boolean) => takenBytes(first, { isLimited }) <= takenBytes(before, { isLimited })
      assert.ok(servesAlone || reserves(false) || (comparison.isAsked && failuresBefore === 0 && reserves(true)))
      assert.ok(failures <= failuresBefore)
      const isCalmer = first.within!.retries < before.within!.retries
      const isSmaller = takenBytes(first, comparison) < takenBytes(before, comparison)
      assert.ok(
        failures < failuresBefore || isCalmer || isSmaller || first.leastCapacityBytes! < before.leastCapacityBytes!,
      )
    }
  }
  assert.ok(count > 1000, `${count}`)
})
