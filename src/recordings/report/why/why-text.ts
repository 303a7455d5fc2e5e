// Why a recorded run needed its memory, as text: its failed requests, what hides in it, and who held the memory.

import type { Trace } from '../../trace/trace.js'
import type { TuneReport } from '../../trace/tune/tune-report.js'
import { adviceLines } from '../advice-text.js'
import { headOf } from '../replay-text.js'
import { isSettingLine } from '../settings-text.js'
import { type TextStyle, wrapText } from '../table.js'
import { fitted, gapsOf, sentences } from '../trace-lines.js'
import { categoriesText } from './categories-text.js'
import { deviceMemoryLines } from './device-memory-text.js'
import { giveBackLines } from './give-back-text.js'
import { idleText, poolsText } from './idle-text.js'
import { growthText } from './leak-text.js'
import { outOfMemoryText } from './out-of-memory-text.js'
import { peakText, whenText } from './peak-text.js'
import { waitingText } from './waiting-text.js'
import { type WhyFacts, whyFacts } from './why-facts.js'

/** Options of the text; every one may be left out. */
interface WhyOptions {
  /** steps are those that `stepsOf(trace, pattern)` finds */
  readonly pattern?: RegExp
  /** the settings that were tried; null for none */
  readonly tuned?: TuneReport | null
  /** the memory of the GPU in bytes; null if unknown */
  readonly deviceBytes?: number | null
  /** `whyFacts(trace, pattern)`, if they are known already */
  readonly facts?: WhyFacts
}

/** The whole text in lines of at most `width` columns. */
export function whyText(trace: Trace, style: TextStyle, options: WhyOptions = {}): string {
  const { pattern, tuned = null, deviceBytes = null, facts = whyFacts(trace, pattern) } = options
  const { width, paint } = style
  const { idle, pools, poolsAtEnd, waiting, growth } = facts
  const last = facts.trace.outOfMemories.at(-1)
  const failed = outOfMemoryText(facts, style)
  const numbers = trace.events === 0 ? [] : ['Event numbers count from 0.']
  const when = (event: number) => whenText(trace, event, growth.steps)
  const purpose = categoriesText(facts.categories, last !== undefined, width)
  const found = [...giveBackLines(facts.trace), ...deviceMemoryLines(trace, last, deviceBytes)]
  const parts = [
    [headOf(facts, width, paint), sentences([...gapsOf(trace), ...numbers], width)].join('\n'),
    ...(failed.length > 0 ? failed : ['No request failed.']),
    ...(last === undefined ? [] : purpose),
    ...(found.length === 0 ? [] : [sentences(found, width)]),
    ...(tuned === null ? [] : [adviceText(tuned, style)]),
    peakText(facts, when(facts.peak.event), width),
    ...(last === undefined ? [...purpose, ...poolsText(pools, poolsAtEnd, 'then', style)] : []),
    ...(waiting === null ? [] : waitingText(waiting, facts.trace, when(waiting.peakEvent), width)),
    ...(idle === null ? [] : idleText(idle, facts.peak.atEnd, when(idle.moment.event), width)),
    ...(last === undefined ? [] : poolsText(pools, poolsAtEnd, 'at the last failed request', style)),
    ...growthText(growth, width, pattern),
  ]
  return parts.map(part => fitted(part, width)).join('\n\n')
}

function adviceText(tuned: TuneReport, { width, paint }: TextStyle): string {
  const lines = adviceLines(tuned).map(line =>
    isSettingLine(line) ? paint.green(`    ${line}`) : wrapText(`• ${line}`, width, '  '),
  )
  return [wrapText("Settings of PyTorch's allocator, tried by replays of this recording:", width), ...lines].join('\n')
}
