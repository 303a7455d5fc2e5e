// The text about an out-of-memory message: its sizes, the sum that decides, and the verdict.

import { listed } from '../../../core/base/readable.js'
import { shown } from '../../../core/base/shown-text.js'
import { answerOf, type MessageAnswer, type OutOfMemoryMessage } from '../../trace/messages/out-of-memory-message.js'
import { plus, type RoundedSize } from '../../trace/messages/rounded-size.js'
import { factLines, type TextStyle, wrapText } from '../table.js'
import { counted, WAITING_FACT } from '../trace-lines.js'
import { listedAmount, messageVerdict, segmentOf, sizeText, unitOf } from './message-verdict.js'
import { VERDICTS } from './out-of-memory-text.js'

const MOST_EARLIER = 5
const MOST_PROCESSES = 4

/** The last message in full, the earlier ones in a line each, and the devices of `others`. */
export function messageText(
  messages: readonly OutOfMemoryMessage[],
  others: readonly OutOfMemoryMessage[],
  { width, paint }: TextStyle,
): string[] {
  const last = messages[messages.length - 1]
  const answer = answerOf(last)
  const facts = factLines(messageFacts(last, answer), width)
  const title = wrapText(`Out of memory, by ${titleOf(last, messages.length)}:`, width)
  const verdict = wrapText(`→ ${messageVerdict(last, answer)}`, width, '  ')
  return [
    [paint.bold(title), ...facts, paint.red(verdict)].join('\n'),
    ...otherDevices(others, width),
    ...earlierText(messages.slice(0, -1), width),
  ]
}

function titleOf({ allocator, backend, device }: OutOfMemoryMessage, count: number): string {
  const kind = backend === 'CUDA' ? '' : ` (${shown(backend)})`
  const where = device === null ? '' : ` of GPU ${device}`
  return count === 1
    ? `${allocator}'s message${kind}${where}`
    : `the last of ${count} messages of ${allocator}${kind}${where}`
}

/** The sizes of a message, each with its name. */
function messageFacts(message: OutOfMemoryMessage, answer: MessageAnswer): [name: string, value: string][] {
  const { asked, free, idle, waiting, inUse, privatePools, allowed, total } = message
  const facts: [string, string][] = []
  const unit = unitOf(message, answer)
  const add = (name: string, size: RoundedSize | null, after = '', text = sizeText) => {
    if (size !== null) facts.push([name, `${text(size)}${after}`])
  }
  const compared = (size: RoundedSize) => listedAmount(size, unit)
  add('asked', asked, segmentNote(message), compared)
  add('free', free, ' on the device')
  add('idle', idle, ' reserved by PyTorch, but not in use')
  const isWaiting = waiting !== null && waiting.bytes > 0
  if (isWaiting) add('waiting', waiting, ` of that ${WAITING_FACT}, by the summary`)
  if (answer.withinLimit === null)
    add('together', answer.room, isWaiting ? ' free and idle, without what waits' : ' free and idle', compared)
  const pools =
    privatePools === null ? '' : `, ${sizeText(privatePools)} of it idle in private pools, as of CUDA graphs`
  add('in use', inUse, ` by PyTorch${pools}`)
  const within =
    answer.withinLimit === null ? '' : `, which leaves ${compared(answer.withinLimit)} beside what is in use`
  add('limit', allowed, ` is the program's own${within}`)
  facts.push(...processFacts(message, answer))
  const elsewhere =
    answer.elsewhere === null || answer.elsewhere.bytes <= 0
      ? ''
      : `, ${sizeText(answer.elsewhere)} of it neither free nor PyTorch's`
  add('device', total, answer.contradictions.length > 0 ? '' : elsewhere)
  return facts
}

/** The programs on the device, this one first, then those that hold most. */
function processFacts({ processes }: OutOfMemoryMessage, { outside }: MessageAnswer): [name: string, value: string][] {
  const own = processes.filter(({ process }) => process === null)
  const others = processes.filter(({ process }) => process !== null).sort((a, b) => b.size.bytes - a.size.bytes)
  const rest = others.slice(MOST_PROCESSES)
  // In a container PyTorch does not know its own number on the host.
  const maybeOwn = own.length > 0 ? '' : ', which may be this one, as in a container'
  const beside =
    outside === null || outside.bytes <= 0
      ? ''
      : `, ${sizeText(outside)} of it not PyTorch's: of CUDA itself, and of libraries such as NCCL and cuBLAS`
  return [
    ...own.map(({ size }): [string, string] => ['process', `${sizeText(size)} by this one${beside}`]),
    ...others
      .slice(0, MOST_PROCESSES)
      .map(({ process, size }): [string, string] => ['others', `${sizeText(size)} by process ${process}${maybeOwn}`]),
    ...(own.length > 0 && others.length === 0 ? [['others', 'none in the message'] as [string, string]] : []),
    ...(rest.length === 0
      ? []
      : [['others', `${sizeText(plus(...rest.map(({ size }) => size)))} by ${rest.length} more`] as [string, string]]),
  ]
}

function segmentNote(message: OutOfMemoryMessage): string {
  const segment = segmentOf(message)
  return segment === undefined ? '' : `, PyTorch's segment for requests ${segment.requests}`
}

function otherDevices(others: readonly OutOfMemoryMessage[], width: number): string[] {
  if (others.length === 0) return []
  const counts = new Map<string, number>()
  for (const { device } of others) {
    const name = device === null ? 'a device without a number' : `GPU ${device}`
    counts.set(name, (counts.get(name) ?? 0) + 1)
  }
  const list = listed([...counts].map(([name, count]) => `${name} (${counted(count, 'message')})`))
  return [wrapText(`Messages of other devices: ${list}. --gpu N chooses.`, width)]
}

function earlierText(earlier: readonly OutOfMemoryMessage[], width: number): string[] {
  if (earlier.length === 0) return []
  const lines = earlier.slice(-MOST_EARLIER).map(message => {
    const { verdict, room } = answerOf(message)
    const together = room === null ? '' : `, ${sizeText(room)} free and idle`
    const asked = message.asked === null ? 'unknown' : sizeText(message.asked)
    return wrapText(`  ${asked} asked${together}: ${VERDICTS[verdict]}`, width, '    ')
  })
  const left = earlier.length - lines.length
  return [['Failed before:', ...(left > 0 ? [`  ${left} more`] : []), ...lines].join('\n')]
}
