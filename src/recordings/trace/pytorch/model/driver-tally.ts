import type { CallName } from '../../../../core/driver/driver.js'
import { costOfMappingUs, costUs } from '../../../../core/driver/simulated/cost-model.js'

/** Counts the driver calls that a model of an allocator would make, and their time by the cost model. */
export class DriverTally {
  calls: Record<string, number>
  /** by the cost model, since the last call of `take` */
  seconds = 0

  constructor(...names: readonly CallName[]) {
    this.calls = Object.fromEntries(names.map(name => [name, 0]))
  }

  /** Notes `count` calls of `bytes` each. */
  note(name: CallName, bytes: number, count = 1): void {
    this.calls[name] += count
    this.seconds += (count * costUs(name, bytes)) / 1e6
  }

  /** Notes one call that gives access to `mappings` of `bytes` each. */
  noteAccess(bytes: number, mappings: number): void {
    this.calls['cuMemSetAccess']++
    this.seconds += (mappings * costOfMappingUs('cuMemSetAccess', bytes, mappings)) / 1e6
  }

  /** The counts since the last call of `take`. */
  take(): { calls: Record<string, number>; seconds: number } {
    const { calls, seconds } = this
    this.calls = Object.fromEntries(Object.keys(calls).map(name => [name, 0]))
    this.seconds = 0
    return { calls, seconds }
  }
}
