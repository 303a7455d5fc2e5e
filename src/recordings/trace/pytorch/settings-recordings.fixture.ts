// Recordings of small programs under settings of PyTorch's allocator, and what PyTorch itself counted in each run.
// traces/record/settings.py made them.

import { existsSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { readRecording } from '../formats/read-recording.js'

/** The counters of PyTorch after a run. */
export interface RecordedFigures {
  readonly name: string
  readonly settings: string
  /** the limit by torch.cuda.set_per_process_memory_fraction */
  readonly limitBytes?: number
  readonly peakReservedBytes: number
  readonly peakGrantedBytes: number
  readonly retries: number
  readonly outOfMemories: number
}

const FOLDER = new URL('../../../../../traces/settings/', import.meta.url)

function urlOf(name: string): URL {
  return new URL(`${name}.pickle.gz`, FOLDER)
}

/** The figures of all runs, also of those whose recordings are not in the repository. */
export const RUNS: readonly RecordedFigures[] = readFileSync(new URL('figures.jsonl', FOLDER), 'utf8')
  .trim()
  .split('\n')
  .map(line => JSON.parse(line))

/** The runs with a recording. */
export const RECORDED_RUNS = RUNS.filter(({ name }) => existsSync(urlOf(name)))

export function settingsRecording(name: string) {
  return readRecording(fileURLToPath(urlOf(name)))
}
