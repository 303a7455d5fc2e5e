// How far a limit of the program itself must be raised, after it stopped a request.

import { formatBytes } from '../../core/base/bytes.js'
import type { TuneRecording, TuneReport, TuneRun } from '../trace/tune/tune-report.js'

/** torch.cuda.set_per_process_memory_fraction takes shares; more digits than these tell nothing. */
const SHARE_STEPS = 1000

/** Empty unless the last failed request was stopped by a limit of the program, while the device had room. */
export function limitLines(recording: TuneRecording, report: TuneReport): string[] {
  const { lastFailure, runs } = recording
  if (lastFailure?.deviceHadRoom !== true) return []
  const least = ({ settings }: TuneRun) => runs.find(run => run.settings === settings)?.leastCapacityBytes ?? null
  const today = least(report.runs.find(run => run.settings === report.baseline)!)
  // Within less than it had, only work of other streams can have stopped it.
  if (today === null || today <= (lastFailure.capacityBytes ?? 0)) return []
  const deviceBytes = (lastFailure.reservedBytes ?? 0) + (lastFailure.deviceFreeBytes ?? 0)
  const best = report.advice.at(0)
  const bestBytes = best === undefined ? null : least(best)
  const withBest =
    best === undefined || bestBytes === null || bestBytes >= today
      ? ''
      : `, with ${best.settings || "PyTorch's defaults"} ${limitText(bestBytes, deviceBytes)}`
  return [
    "The program's own limit stopped it. The least limit that serves the run with today's settings is " +
      `${limitText(today, deviceBytes)}${withBest}.`,
  ]
}

/** The device has at least what was reserved and free. So a share of that is enough. */
function limitText(bytes: number, deviceBytes: number): string {
  const size = formatBytes(bytes)
  if (bytes > deviceBytes) return `${size}, more than the ${formatBytes(deviceBytes)} that the device had for it`
  const share = Math.ceil((bytes / deviceBytes) * SHARE_STEPS) / SHARE_STEPS
  return `${size} (set_per_process_memory_fraction(${share}) is enough)`
}
