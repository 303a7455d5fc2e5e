// Idle memory at the moment that matters: how much there is, who keeps it from being given back, and in which pools and
// on which streams it lies.

import { formatBytes } from '../../../core/base/bytes.js'
import type { IdleMoment } from '../../trace/analysis/idle-moment.js'
import type { IdleMemory, Pin } from '../../trace/analysis/pinned-segments.js'
import type { PoolMemory } from '../../trace/analysis/pools.js'
import { formatCount } from '../number-format.js'
import { holderText, isUnknown, placeText } from '../place-text.js'
import { rightColumn, sizeLines, type TextStyle, tableText, wrapText } from '../table.js'
import { counted, piecesText } from '../trace-lines.js'

const MOST_PINS = 5
const MOST_POOLS = 6
/** Less idle memory than this share of the reserved is the usual rest of rounding and of segments not full yet. */
const LEAST_IDLE_SHARE = 0.1
/** Blocks that keep less than this share of the reserved memory are not worth a line. */
const LEAST_PINNED_SHARE = 0.01
/** From here on a stream's handle is an address, which is read better in base 16. */
const LEAST_ADDRESS = 2 ** 20

/** The idle memory of a recording. */
export interface Idle {
  readonly moment: IdleMoment
  readonly memory: IdleMemory
}

/** Memory in bytes at the end of a recording. */
export interface MemoryAtEnd {
  readonly inUseBytes: number
  readonly reservedBytes: number
}

/** Empty where little is idle. `when` names the moment; `atEnd` may be null. */
export function idleText(idle: Idle, atEnd: MemoryAtEnd | null, when: string, width: number): string[] {
  const { moment, memory } = idle
  const reserved = moment.memory.reservedBytes ?? 0
  if (memory.idleBytes <= LEAST_IDLE_SHARE * reserved) return moment.isFailure ? [] : endText(atEnd, width)
  const pins = pinText(memory, LEAST_PINNED_SHARE * reserved, width)
  const lines = [...idleSentences(idle, when).map(line => wrapText(line, width)), ...pins]
  return lines.length === 0 ? [] : [lines.join('\n')]
}

/** How much is idle when most is reserved, and where it lies; empty where little is. */
export function idleSentences({ moment, memory }: Idle, when: string): string[] {
  const { reservedBytes, liveBytes } = moment.memory
  const reserved = reservedBytes ?? 0
  if (memory.idleBytes <= LEAST_IDLE_SHARE * reserved) return []
  const rounding = reserved - liveBytes - memory.idleBytes
  const rounded = rounding > 0 ? `, and ${formatBytes(rounding)} more by rounding of sizes` : ''
  const most = `Most reserved: ${formatBytes(reserved)} ${when}, ${formatBytes(liveBytes)} in use then${rounded}.`
  // The facts of a failed request have the idle pieces already.
  const first = moment.isFailure ? 'Of the idle memory' : `${most} ${idleIn(memory)}; of this`
  const parts = partsOf(memory)
  return parts === '' ? (moment.isFailure ? [] : [`${most} ${idleIn(memory)}.`]) : [`${first} ${parts}.`]
}

/** Empty if most of the reserved memory is in use at the end, or none is, since the program has ended. */
function endText(atEnd: MemoryAtEnd | null, width: number): string[] {
  if (atEnd === null || atEnd.inUseBytes === 0 || 2 * atEnd.inUseBytes >= atEnd.reservedBytes) return []
  const [inUse, reserved] = [atEnd.inUseBytes, atEnd.reservedBytes].map(formatBytes)
  return [wrapText(`At the end of the recording ${inUse} are in use, and ${reserved} are still reserved.`, width)]
}

function idleIn({ idleBytes, pieces, largestBytes }: IdleMemory): string {
  return `${formatBytes(idleBytes)} were idle, ${piecesText(pieces, largestBytes)}`
}

function partsOf({ wholeBytes, wholeSegments, privateBytes }: IdleMemory): string {
  const segments =
    wholeSegments === 1 ? 'lie in a whole segment' : `lie in ${formatCount(wholeSegments)} whole segments`
  const whole = `${formatBytes(wholeBytes)} ${segments}, which torch.cuda.empty_cache() gives back`
  const own = `${formatBytes(privateBytes)} lie in private pools, such as those of CUDA graphs, which serve nothing else`
  return [...(wholeBytes > 0 ? [whole] : []), ...(privateBytes > 0 ? [own] : [])].join(', and ')
}

/** The blocks that keep idle memory, if that is at least `leastBytes`. */
function pinText({ pins }: IdleMemory, leastBytes: number, width: number): string[] {
  const sum = (of: readonly Pin[]) => of.reduce((total, { idleBytes }) => total + idleBytes, 0)
  if (sum(pins) === 0 || sum(pins) < leastBytes) return []
  const pages = pins.some(({ expandable }) => expandable)
    ? ' Whole pages of expandable segments go back when PyTorch runs full, or at empty_cache().'
    : ''
  const [first] = pins
  if (pins.length === 1 && isUnknown(first)) {
    const { blocks, bytes, idleBytes, segments } = first
    const keep = blocks === 1 ? 'keeps' : 'keep'
    const who = `${counted(blocks, 'block')} (${formatBytes(bytes)}) ${keep} ${formatBytes(idleBytes)}`
    return [wrapText(`${who} in ${counted(segments, 'segment')}, of which most is idle.${pages}`, width)]
  }
  const lines = pins.slice(0, MOST_PINS).map(pin => [formatBytes(pin.idleBytes), pinnedText(pin)] as const)
  if (pins.length > MOST_PINS) {
    lines.push([formatBytes(sum(pins.slice(MOST_PINS))), counted(pins.length - MOST_PINS, 'other place')])
  }
  const title = `Blocks that keep segments of which most is idle, by call site${pages === '' ? ':' : `.${pages}`}`
  return [wrapText(title, width), ...sizeLines(lines, width)]
}

function pinnedText(pin: Pin): string {
  const { blocks, bytes, segments } = pin
  return `in ${counted(segments, 'segment')}: ${placeText(pin)} (${counted(blocks, 'block')}, ${formatBytes(bytes)})`
}

/** Empty for one pool on one stream. `when` names the moment. */
export function poolsText(
  pools: readonly PoolMemory[],
  atEnd: readonly PoolMemory[],
  when: string,
  style: TextStyle,
): string[] {
  const own = privateText(pools, atEnd, style.width)
  if (pools.length < 2) return own.length === 0 ? [] : [own.join('\n')]
  const rows = pools.slice(0, MOST_POOLS)
  const bytes = (title: string, of: (memory: PoolMemory) => number) =>
    rightColumn<PoolMemory>(title, memory => formatBytes(of(memory)))
  const hasWaiting = rows.some(({ waitingBytes }) => waitingBytes > 0)
  const table = tableText(
    rows,
    [
      { title: 'pool', align: 'left', cell: ({ pool }) => `(${pool})${pool === '0,0' ? ' default' : ' private'}` },
      rightColumn('stream', ({ stream }) => streamText(stream)),
      bytes('reserved', ({ reservedBytes }) => reservedBytes),
      bytes('in use', ({ inUseBytes }) => inUseBytes),
      ...(hasWaiting ? [bytes('waiting', ({ waitingBytes }) => waitingBytes)] : []),
      bytes('idle', ({ idleBytes }) => idleBytes),
      bytes('largest piece', ({ largestIdleBytes }) => largestIdleBytes),
    ],
    style,
  )
  const others = pools.slice(MOST_POOLS)
  const rest = others.reduce((sum, { reservedBytes }) => sum + reservedBytes, 0)
  const more = others.length === 0 ? [] : [`and ${formatBytes(rest)} in ${formatCount(others.length)} more`]
  const title = `By pool and stream ${when}; none serves another:`
  return [[wrapText(title, style.width), table, ...more, ...own].join('\n')]
}

/** The memory of private pools, such as those of graphs: the sum, the place that holds most of each, the end. */
function privateText(pools: readonly PoolMemory[], atEnd: readonly PoolMemory[], width: number): string[] {
  const own = pools.filter(isPrivate).sort((a, b) => b.inUseBytes - a.inUseBytes)
  const [then, last] = [sumOf(own), sumOf(atEnd.filter(isPrivate))]
  const end = last === '' || last === then ? [] : [wrapText(`At the end of the recording ${last}.`, width)]
  if (own.length === 0) return end
  const title = `${then}. Most in ${own.length === 1 ? 'it' : 'each'}:`
  const lines = own.slice(0, MOST_POOLS).map(({ pool, holder, reservedBytes }) => {
    const text = holder === null ? 'nothing is in use' : holderText(holder)
    return [formatBytes(holder?.bytes ?? 0), `(${pool}), ${formatBytes(reservedBytes)} reserved: ${text}`] as const
  })
  const more = own.length > MOST_POOLS ? [`  and ${counted(own.length - MOST_POOLS, 'other pool')}`] : []
  return [wrapText(title, width), ...sizeLines(lines, width), ...more, ...end]
}

function isPrivate({ pool }: PoolMemory): boolean {
  return pool !== '0,0'
}

/** Private pools in a sentence; empty for none. */
function sumOf(own: readonly PoolMemory[]): string {
  if (own.length === 0) return ''
  const have =
    own.length === 1
      ? 'private pool, such as that of a CUDA graph, has'
      : 'private pools, such as those of CUDA graphs, have'
  const sum = (of: (memory: PoolMemory) => number) => formatBytes(own.reduce((all, each) => all + of(each), 0))
  return `${formatCount(own.length)} ${have} ${sum(each => each.reservedBytes)}, ${sum(each => each.inUseBytes)} of it in use`
}

function streamText(stream: number): string {
  return stream < LEAST_ADDRESS ? String(stream) : `0x${stream.toString(16)}`
}
