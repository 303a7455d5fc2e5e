// `cuda-mempool why`: why a recorded run needed its memory, or ran out of it; also by an error message alone.

import { FormatError, SlowReplayError } from '../core/base/errors.js'
import { shown } from '../core/base/shown-text.js'
import { LITTLE_IDLE } from '../recordings/report/advice-text.js'
import { RECIPE } from '../recordings/report/recording-recipe.js'
import { otherMessageText } from '../recordings/report/why/other-message-text.js'
import { stateText } from '../recordings/report/why/state-text.js'
import { toldText } from '../recordings/report/why/told-text.js'
import { whyAnswer, whyStateAnswer, whyTextAnswer } from '../recordings/report/why/why-answer.js'
import { whyFacts } from '../recordings/report/why/why-facts.js'
import { whyText } from '../recordings/report/why/why-text.js'
import { isDecided, ofOneDevice, type TextFigures } from '../recordings/trace/messages/read-text.js'
import type { TraceFigures } from '../recordings/trace/replay-result.js'
import { Action, type Trace } from '../recordings/trace/trace.js'
import { remediesFor } from '../recordings/trace/tune/remedies.js'
import { answer } from './answers.js'
import { onOneLine, UsageError } from './exit.js'
import { deviceNumber, memoryOf, printNext, readOption, readToExplain, withProgressOn } from './recording-input.js'
import { note, print, printJson } from './terminal.js'

/** The options as text, from the command line. */
export interface WhyArguments {
  readonly gpu?: string
  readonly step?: string
  readonly deviceMemory?: string
  readonly json?: boolean
}

/** Prints the text for one file, or the same as JSON. */
export async function why(file: string, { gpu, step, deviceMemory, json = false }: WhyArguments): Promise<void> {
  const pattern = step === undefined ? undefined : readOption('--step', () => new RegExp(step))
  const deviceBytes = deviceMemory === undefined ? null : memoryOf('--device-memory', deviceMemory)
  const found = await readToExplain(file, gpu)
  if ('messages' in found) return explainText(found, deviceNumber(gpu), deviceBytes, json)
  if (found.action.every(code => code === Action.snapshot)) return explainState(found, json)
  const trace = found
  const facts = whyFacts(trace, pattern)
  const last = facts.trace.outOfMemories.at(-1)
  const tuned = await withProgressOn(trace, onProgress => remediesFor(trace, last, onProgress)).catch(error => {
    if (!(error instanceof SlowReplayError)) throw error
    note(onOneLine(error.message))
    return null
  })
  if (json) {
    printJson(answer('why', whyAnswer(trace, facts, tuned, deviceBytes)))
    return
  }
  print(style => whyText(trace, style, { tuned, facts, deviceBytes, ...(pattern === undefined ? {} : { pattern }) }))
  printNext(mayGain(facts.trace) ? 'tune' : 'report', [file])
}

/** Whether settings may help a run in which no request failed: `why` tries them after a failed one only. */
function mayGain({ recorder, outOfMemories, recordedPeakReservedBytes, peakRequestedBytes }: TraceFigures): boolean {
  const isIdle = (recordedPeakReservedBytes ?? 0) * (1 - LITTLE_IDLE) > peakRequestedBytes
  return recorder === 'PyTorch' && outOfMemories.length === 0 && isIdle
}

/** The answer to an error message, or to the totals of an allocator. */
function explainText(
  figures: TextFigures,
  device: number | undefined,
  deviceBytes: number | null,
  json: boolean,
): void {
  const { file, messages, summaries, other } = figures
  if (other !== null && !isDecided(other)) throw new FormatError(`${file}: ${otherMessageText(other)}`)
  const { chosen } = ofOneDevice(messages, device)
  const isKnown = other !== null || chosen.length > 0 || summaries.some(each => each.device === device)
  if (device !== undefined && !isKnown) throw new UsageError(`--gpu: ${shown(file)} has no message of GPU ${device}`)
  if (json) {
    printJson(answer('whyText', whyTextAnswer(figures, device, deviceBytes)))
    return
  }
  print(style => toldText(figures, style, device, deviceBytes))
}

/** The answer to a snapshot without events, or with marks only. */
function explainState(trace: Trace, json: boolean): void {
  if (json) printJson(answer('whyState', whyStateAnswer(trace)))
  else print(style => `${stateText(trace, style)}\n\n${RECIPE}`)
}
