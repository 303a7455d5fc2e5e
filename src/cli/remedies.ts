// The settings of PyTorch tried over a recording that ran out of memory.

import { recordedOutOfMemories } from '../trace/failures/out-of-memory.js'
import type { Trace } from '../trace/trace.js'
import { tune } from '../trace/tune/tune.js'
import type { TuneReport } from '../trace/tune/tune-report.js'
import { LEAST_CAPACITY_BYTES, withBar } from './recording-input.js'

/** Enough for all usual settings over some ten thousand events. */
const SECONDS = 3

/** Tries settings within the memory that the program could have; null if no request failed, or not in PyTorch. */
export async function remediesFor(trace: Trace): Promise<TuneReport | null> {
  const last = recordedOutOfMemories(trace).at(-1)
  if (last === undefined || trace.recorder !== 'PyTorch') return null
  const { capacityBytes } = last
  const limit = capacityBytes === null || capacityBytes < LEAST_CAPACITY_BYTES ? {} : { capacityBytes }
  return await withBar(bar =>
    tune([trace], {
      ...limit,
      seconds: SECONDS,
      onProgress: (done, what) => bar.update(done, `${trace.file}: ${what}`),
    }),
  )
}
