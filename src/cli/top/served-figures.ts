// Checks the answers of a served process. Another program may have made the socket, and answer with anything.

import type { ProcessStats } from '../../live/process-stats.js'
import type { ServedSnapshots } from './top-model.js'

/** The figures of a pool that the picture shows. */
const POOL_FIGURES = [
  'liveBytes',
  'requestedBytes',
  'reservedBytes',
  'peakReservedBytes',
  'cachedBytes',
  'pendingBytes',
  'largestFreeBytes',
  'liveBuffers',
  'allocations',
  'cacheMisses',
  'growths',
  'insertedWaits',
] as const

/** The figures of a shelf that the picture shows. */
const SHELF_FIGURES = ['device', 'budgetBytes', 'awakeBytes', 'waiting', 'switches', 'lastSwitchMs'] as const

type Fields = Readonly<Record<string, unknown>>

/** The body of `/stats`; null if the text is anything else. */
export function statsIn(text: string): ProcessStats | null {
  // Older processes serve pools only.
  const stats: Fields = { shelves: [], regions: [], ...fieldsIn(text) }
  const isServed =
    stats['version'] === 1 &&
    isNumber(stats['pid']) &&
    isNumber(stats['timeMs']) &&
    typeof stats['command'] === 'string' &&
    isListOf(stats['devices'], ({ ordinal, name }) => isNumber(ordinal) && typeof name === 'string') &&
    isListOf(stats['pools'], isPool) &&
    isListOf(stats['shelves'], isShelf) &&
    isListOf(stats['regions'], isRegion)
  return isServed ? (stats as unknown as ProcessStats) : null
}

/** The body of `/snapshot`; null if the text is anything else. */
export function snapshotsIn(text: string): ServedSnapshots | null {
  const snapshots = fieldsIn(text)
  const isBlock = ({ ptr, bytes, state, stream }: Fields) =>
    isNumber(ptr) && isNumber(bytes) && typeof state === 'string' && (stream === null || isNumber(stream))
  const isRange = ({ blocks }: Fields) => isListOf(blocks, isBlock)
  const isServed = isListOf(
    snapshots['pools'],
    ({ name, snapshot }) => typeof name === 'string' && isListOf(fieldsOf(snapshot)['ranges'], isRange),
  )
  return isServed ? (snapshots as unknown as ServedSnapshots) : null
}

/** The sentence of an answer that is an error; null if it has none. */
export function errorIn(text: string): string | null {
  const { error } = fieldsIn(text)
  return typeof error === 'string' ? error : null
}

function isPool({ name, kind, device, outOfMemory, stats, tags }: Fields): boolean {
  const figures = fieldsOf(stats)
  return (
    typeof name === 'string' &&
    typeof kind === 'string' &&
    isNumber(device) &&
    isNumber(outOfMemory) &&
    POOL_FIGURES.every(figure => isNumber(figures[figure])) &&
    (figures['maxPoolBytes'] === null || isNumber(figures['maxPoolBytes'])) &&
    (tags === null || isListOf(Object.values(fieldsOf(tags)), ({ requestedBytes }) => isNumber(requestedBytes)))
  )
}

function isShelf({ name, models, ...figures }: Fields): boolean {
  const isModel = ({ name, state, bytes, running, lastUsedAt }: Fields) =>
    [name, state].every(isText) && [bytes, running].every(isNumber) && isNumberOrNull(lastUsedAt)
  return isText(name) && SHELF_FIGURES.every(figure => isNumber(figures[figure])) && isListOf(models, isModel)
}

function isRegion({ name, version, state, bytes, readers, lastUse, here }: Fields): boolean {
  const isHere = here === null || isText(here)
  return [name, version, state].every(isText) && isNumber(bytes) && [readers, lastUse].every(isNumberOrNull) && isHere
}

function isText(value: unknown): value is string {
  return typeof value === 'string'
}

function isNumberOrNull(value: unknown): value is number | null {
  return value === null || isNumber(value)
}

function isNumber(value: unknown): value is number {
  return typeof value === 'number' && value >= 0
}

function isListOf(value: unknown, fits: (fields: Fields) => boolean): boolean {
  return Array.isArray(value) && value.every(each => fits(fieldsOf(each)))
}

/** The fields of a value; those of `{}` for a value without any. */
function fieldsOf(value: unknown): Fields {
  return typeof value === 'object' && value !== null ? (value as Fields) : {}
}

function fieldsIn(text: string): Fields {
  try {
    return fieldsOf(JSON.parse(text))
  } catch {
    return {}
  }
}
