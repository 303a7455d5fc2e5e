// The settings of PyTorch tried over a recording that ran out of memory.

import type { RecordedOutOfMemory } from '../failures/out-of-memory.js'
import { paceOf } from '../pace.js'
import type { Trace } from '../trace.js'
import { tune } from './tune.js'
import type { TuneReport } from './tune-report.js'

/** Enough for all usual settings over some ten thousand events. Recordings of one page share it. */
const SECONDS = 3

/**
 * Tries settings as `tune` does, within the memory that the program could have when its last request failed. Null for a
 * program without failed requests or without PyTorch, and if freed memory waited for another stream: no setting ends
 * that. `onProgress` gets the done part, from 0 to 1, and the setting under way.
 */
export async function remediesFor(
  trace: Trace,
  last: RecordedOutOfMemory | undefined,
  onProgress?: (fraction: number, what: string) => void,
): Promise<TuneReport | null> {
  if (last === undefined || last.verdict === 'waiting' || trace.recorder !== 'PyTorch') return null
  const seconds = SECONDS / paceOf(trace).recordings
  return await tune([trace], { seconds, ...(onProgress === undefined ? {} : { onProgress }) })
}
