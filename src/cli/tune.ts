// `cuda-mempool tune`: tries PyTorch's settings over recordings, and prints which to set.

import { tuneAnswer } from '../recordings/report/advice-text.js'
import { tuneText } from '../recordings/report/tune-text.js'
import { checkSettingsLine } from '../recordings/trace/pytorch/merged-settings.js'
import { checkSetting, type TuneOptions, tune } from '../recordings/trace/tune/tune.js'
import { answer } from './answers.js'
import { STATUS, UsageError } from './exit.js'
import { capacityOf, readFiles, readOption, sayContradictions, withProgress } from './recording-input.js'
import { print, printJson } from './terminal.js'

/** The options as text, from the command line. */
export interface TuneArguments {
  readonly gpu?: string
  readonly capacity?: string
  readonly setting?: readonly string[]
  readonly merge?: string
  readonly seconds?: string
  readonly json?: boolean
}

/** Tunes all files together and returns the exit status. */
export async function tuneFiles(files: readonly string[], given: TuneArguments): Promise<number> {
  const options = optionsOf(given)
  const traces = await readFiles(files, given.gpu)
  sayContradictions(traces)
  const report = await withProgress(onProgress => tune(traces, { ...options, onProgress }))
  if (given.json) printJson(answer('tune', tuneAnswer(report)))
  else print(style => tuneText(report, style))
  return STATUS.done
}

function optionsOf({ capacity, setting = [], merge, seconds }: TuneArguments): TuneOptions {
  const capacityBytes = capacity === undefined ? Infinity : capacityOf(capacity)
  for (const text of setting) readOption('--setting', () => checkSetting(text, capacityBytes))
  if (merge !== undefined) readOption('--merge', () => checkSettingsLine(merge))
  return {
    settings: setting,
    capacityBytes,
    ...(merge === undefined ? {} : { merge }),
    ...(seconds === undefined ? {} : { seconds: secondsOf(seconds) }),
  }
}

function secondsOf(text: string): number {
  const seconds = text === '' ? NaN : Number(text)
  if (seconds > 0) return seconds
  throw new UsageError(`--seconds: '${text}' is no number above 0`)
}
