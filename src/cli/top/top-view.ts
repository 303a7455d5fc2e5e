// The screen of `cuda-mempool top`: the sum of all pools, a line for each, and the details of the selected one.

import { printable } from '../../core/base/shown-text.js'
import { partsOf } from '../../live/memory-parts.js'
import type { ProcessStats, ServedStats } from '../../live/process-stats.js'
import { formatCount, MISSING } from '../../recordings/report/number-format.js'
import { otherLines } from './other-lines.js'
import { barOf, poolLines, shortBytes } from './pool-lines.js'
import { fitted, flow, type Line, type Span, span } from './styled-lines.js'
import { History, type TopModel } from './top-model.js'

const LEAST_COLUMNS = 8
/** Fewer lines of details tell too little. */
const LEAST_DETAILS = 4
const LEAST_BAR = 12
const LEAST_NAME = 10
/** A refused request is news for so long: a glance each ten seconds sees it. */
const NEWS_MS = 10_000
export const KEYS: readonly string[] = [
  'q quit',
  'arrows select',
  'Enter details',
  'o order',
  's streams',
  't tags',
  'l live',
  'p pause',
  'e record 10 s',
]

/** A column of the table behind the bars. */
interface Column {
  readonly title: string
  readonly width: number
  /** columns of a lower rank are left out last */
  readonly rank: number
  readonly cell: (pool: ServedStats) => Span
}

const COLUMNS: readonly Column[] = [
  { title: 'in use', width: 9, rank: 0, cell: ({ stats }) => span(shortBytes(stats.liveBytes)) },
  { title: 'reserved', width: 9, rank: 3, cell: ({ stats }) => span(shortBytes(stats.reservedBytes)) },
  { title: 'limit', width: 9, rank: 2, cell: ({ stats }) => span(bytesOrNone(stats.maxPoolBytes)) },
  { title: 'pending', width: 9, rank: 5, cell: ({ stats }) => span(shortBytes(stats.pendingBytes)) },
  {
    title: 'OOM',
    width: 6,
    rank: 1,
    cell: ({ outOfMemory }) => span(formatCount(outOfMemory), outOfMemory > 0 ? 'alarm' : 'plain'),
  },
  { title: 'waits', width: 8, rank: 4, cell: ({ stats }) => span(formatCount(stats.insertedWaits)) },
]

function bytesOrNone(bytes: number | null): string {
  return bytes === null ? MISSING : shortBytes(bytes)
}

/** The lines for a terminal, in the locale's letters: at most `rows`, of at most `columns` letters. */
export function screenLines(model: TopModel, columns: number, rows: number, env: NodeJS.ProcessEnv): Line[] {
  const width = Math.max(LEAST_COLUMNS, columns)
  const { stats, pools, silentMs } = model
  if (stats === null) return []
  const top = [...flow([...stateSpans(model), ...headSpans(stats)], width, 1), ...flow(sumSpans(pools), width, 1)]
  const bottom = [...flow(splitMessage(model.message), width), ...keyLines(model, width)]
  const room = Math.max(1, rows - top.length - bottom.length)
  const middle = model.isDetailed ? detailLines(model, width, room) : overviewLines(model, stats, width, room)
  const space = Array.from({ length: room - middle.length }, () => [])
  const [head, ...below] = [...top, ...middle, ...space, ...bottom].slice(0, rows)
  const quiet = silentMs > 0 ? below.map(line => line.map(({ text }) => span(text, 'quiet'))) : below
  return [head, ...quiet].map(line => fitted(line, width, env))
}

/** The lines of a single picture: all pools with all details. */
export function onceLines(stats: ProcessStats, columns: number, env: NodeJS.ProcessEnv): Line[] {
  const width = Math.max(LEAST_COLUMNS, columns)
  const history = new History()
  history.add(stats)
  const shown = { tags: true, streams: false, live: false, keys: false }
  const { pools } = stats
  const table =
    pools.length < 2
      ? []
      : [...flow(sumSpans(pools), width), ...tableLines(pools, null, { history, order: 'opened' }, width)]
  const details = pools.flatMap(pool => [[], ...poolLines(pool, { history, shown, snapshots: null }, width)])
  const none = pools.length === 0 ? [[span('no pool is open now')]] : []
  const head = flow([span('cuda-mempool top'), ...headSpans(stats)], width)
  return [...head, ...none, ...table, ...details, ...otherLines(stats, width)].map(line => fitted(line, width, env))
}

function headSpans({ pid, command, devices }: ProcessStats): Span[] {
  return [
    span(`pid ${pid}`),
    ...devices.map(({ ordinal, name }) => span(`device ${ordinal}: ${name}`)),
    span(command, 'quiet'),
  ]
}

/** The name of the program, and what needs the eye first. */
function stateSpans({ silentMs, isPaused, pools, history }: TopModel): Span[] {
  const refused = pools.filter(({ name }) => history.sinceRefusal(name) < NEWS_MS)
  return [
    span('cuda-mempool top', 'strong'),
    ...(silentMs > 0 ? [span(`last answer ${Math.floor(silentMs / 1000)} s ago`, 'alarm')] : []),
    ...(isPaused ? [span('paused; p goes on', 'strong')] : []),
    ...refused.map(({ name }) => span(`out of memory: ${name}`, 'alarm')),
  ]
}

/** The sums over all pools; pools in the memory of the host by themselves. */
function sumSpans(pools: readonly ServedStats[]): Span[] {
  if (pools.length === 0) return [span('no pool is open now')]
  const onDevice = pools.filter(({ kind }) => kind !== 'host')
  const sum = (of: readonly ServedStats[], figure: 'liveBytes' | 'reservedBytes' | 'pendingBytes') =>
    shortBytes(of.reduce((bytes, { stats }) => bytes + stats[figure], 0))
  const refused = pools.reduce((count, { outOfMemory }) => count + outOfMemory, 0)
  return [
    span(`${pools.length} ${pools.length === 1 ? 'pool' : 'pools'}`, 'strong'),
    span(`in use ${sum(onDevice, 'liveBytes')}`),
    ...(refused === 0 ? [] : [span(`OOM ${formatCount(refused)}`, 'alarm')]),
    span(`reserved ${sum(onDevice, 'reservedBytes')}`),
    span(`pending ${sum(onDevice, 'pendingBytes')}`),
    ...(onDevice.length === pools.length ? [] : [span(`of the host ${sum(pools.filter(isOfHost), 'reservedBytes')}`)]),
  ]
}

function isOfHost({ kind }: ServedStats): boolean {
  return kind === 'host'
}

function splitMessage(message: string): Span[] {
  return message === '' ? [] : message.split('; ').map(text => span(text))
}

/** The keys that fit in a line, or all of them on request. */
function keyLines({ shown }: TopModel, width: number): Line[] {
  const keys = KEYS.map(key => span(key, 'quiet'))
  const all = flow(keys, width)
  if (shown.keys || all.length === 1) return all
  return flow([span('? keys', 'quiet'), ...keys], width, 1)
}

/** The pools, and in at most half of the lines the shelves and regions. */
function overviewLines(model: TopModel, stats: ProcessStats, width: number, room: number): Line[] {
  const most = Math.floor(room / 2)
  const others = most < LEAST_DETAILS ? [] : firstOf(otherLines(stats, width), most, 'top --once shows all')
  return [...tableAndDetails(model, width, room - others.length), ...others]
}

function tableAndDetails(model: TopModel, width: number, room: number): Line[] {
  const { pools, selection } = model
  if (pools.length === 0) return []
  const most = Math.max(1, room - 1)
  const first = Math.max(0, Math.min(selection - Math.floor(most / 2), pools.length - most))
  const table = tableLines(pools, { first, most, selection }, model, width)
  const left = room - table.length - 1
  if (left < LEAST_DETAILS) return table.slice(0, room)
  const details = poolLines(pools[selection], model, width)
  return [...table, [], ...firstOf(details, left, 'Enter shows all')]
}

/** The first lines; if there are more than `most`, the last says what shows them. */
function firstOf(lines: readonly Line[], most: number, whatShowsAll: string): readonly Line[] {
  return lines.length <= most ? lines : [...lines.slice(0, most - 1), [span(`… ${whatShowsAll}`, 'quiet')]]
}

/** The details of the selected pool from `scroll` on. */
function detailLines(model: TopModel, width: number, room: number): Line[] {
  if (model.pools.length === 0) return []
  const lines = poolLines(model.pools[model.selection], model, width)
  model.scroll = Math.max(0, Math.min(model.scroll, lines.length - room))
  return lines.slice(model.scroll, model.scroll + room)
}

/** The pools that are shown of a longer table. */
interface Window {
  readonly first: number
  readonly most: number
  readonly selection: number
}

/** A line for each pool, with bars of one scale. */
function tableLines(
  pools: readonly ServedStats[],
  window: Window | null,
  { history, order }: Pick<TopModel, 'history' | 'order'>,
  width: number,
): Line[] {
  const { first, most, selection } = window ?? { first: 0, most: pools.length, selection: -1 }
  const longest = Math.max(...pools.map(({ name }) => name.length), LEAST_NAME)
  const nameWidth = Math.min(longest, Math.max(LEAST_NAME, Math.floor(width / 5)))
  const { columns, barWidth } = columnsIn(width - nameWidth - 3)
  const whole = Math.max(1, ...pools.map(({ stats }) => Math.max(stats.peakReservedBytes, stats.reservedBytes)))
  const isPart = most < pools.length
  const part = isPart ? `${first + 1}-${Math.min(pools.length, first + most)} of ${pools.length}` : 'pool'
  const title = titleOf(part, order === 'name')
  const scale = `to ${shortBytes(whole)}`.slice(0, barWidth).padEnd(barWidth)
  const titles = columns.map(column => titleOf(column.title, column.title === order).padStart(column.width)).join('')
  const rows = pools.slice(first, first + most).map((pool, index): Line => {
    const isSelected = first + index === selection
    const isNews = history.sinceRefusal(pool.name) < NEWS_MS
    const name = printable(pool.name)
    const shown = name.length > nameWidth ? `${name.slice(0, nameWidth - 1)}~` : name.padEnd(nameWidth)
    const mark = `${isSelected ? '>' : ' '}${isNews ? '!' : ' '}`
    return [
      span(mark, isNews ? 'alarm' : 'plain'),
      span(shown, isSelected ? 'selected' : isNews ? 'alarm' : 'plain'),
      span(' '),
      ...barOf(partsOf(pool), whole, barWidth),
      ...columns.map(({ width: columnWidth, cell }) => {
        const { text, tone } = cell(pool)
        return span(text.padStart(columnWidth), tone)
      }),
    ]
  })
  return [[span(`  ${title.padEnd(nameWidth)} ${scale}${titles}`, 'quiet')], ...rows]
}

/** The title of a column, marked if the table is in its order. */
function titleOf(title: string, isOrder: boolean): string {
  return isOrder ? `*${title}` : title
}

/** The columns that leave room for the bars, and that room. */
function columnsIn(room: number): { columns: readonly Column[]; barWidth: number } {
  let barWidth = room
  const chosen = new Set<Column>()
  for (const column of [...COLUMNS].sort((a, b) => a.rank - b.rank)) {
    if (barWidth - column.width < LEAST_BAR) break
    barWidth -= column.width
    chosen.add(column)
  }
  return { columns: COLUMNS.filter(column => chosen.has(column)), barWidth: Math.max(0, barWidth) }
}
