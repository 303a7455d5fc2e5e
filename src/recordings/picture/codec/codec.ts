// A picture as bytes, and back. A page packs the bytes with gzip. The version changes with the format; a page has its
// own viewer, so nothing reads an older one.

import { FormatError } from '../../../core/base/errors.js'
import { BEFORE } from '../../trace/trace.js'
import {
  type BlockNames,
  FIRST_IN_PARTS,
  NOWHERE,
  type Picture,
  type PictureBlocks,
  type PictureFrame,
  type PolicyPicture,
  type StackTree,
} from '../picture.js'
import { NO_PARTS } from '../policy-picture.js'
import { damaged, PlaneReader, PlaneWriter, sized } from './byte-planes.js'
import { freeDistances, gapsByAction, linked, TIMED, timesOf } from './event-columns.js'
import { asReused, type BlockEvents, fromReused } from './reused-places.js'

const MAGIC = 'cuda-mempool picture'
const VERSION = 3
/** No recording that a page can show has more events or blocks. */
const MOST_ZEROS = 2 ** 28

/** The picture as bytes, not packed. */
export function encodePicture(picture: Picture): Uint8Array {
  const { events, action, timeUs, blocks, names, stacks, policies, steps } = picture
  const out = new PlaneWriter()
  out.text(MAGIC)
  out.numbers([VERSION, events, blocks.count, blocks.initial])
  out.numbers(action)
  out.numbers(freeDistances(picture))
  for (const gaps of gapsByAction(action, timeUs)) out.numbers(gaps)
  const goneBefore = Array.from({ length: blocks.initial }, (_, i) => (blocks.freeRequestedAt[i] === BEFORE ? 1 : 0))
  out.numbers(goneBefore)
  writeByDictionary(out, blocks.bytes)
  for (const column of [blocks.stack, blocks.stream, blocks.pool, blocks.tag]) out.numbers(column)
  out.text(JSON.stringify(names))
  writeStacks(out, stacks)
  out.numbers(steps)
  out.text(JSON.stringify(policies.map(({ policy, label, place }) => ({ policy, label, hasPlaces: place !== null }))))
  for (const policy of policies) writePolicy(out, policy, picture)
  return out.bytes()
}

/** Reads what `encodePicture` wrote. Throws FormatError for anything else, and for damaged bytes. */
export function decodePicture(bytes: Uint8Array): Picture {
  const input = new PlaneReader(bytes)
  if (input.text() !== MAGIC) throw new FormatError('this is no picture of a recording')
  const head = input.integers()
  const [version, events, count, initial] = head
  if (version !== VERSION) throw new FormatError(`the picture has version ${version}, this viewer reads ${VERSION}`)
  if (head.length !== 4 || initial > count || count < 0) throw damaged('its head')
  input.mostZeros = Math.min(Math.max(events, count, bytes.length), MOST_ZEROS)
  const action = sized(input.bytes(), events, 'events')
  const distances = input.integers()
  const timeUs = timesOf(
    action,
    TIMED.map(() => input.numbers()),
  )
  const gone = sized(input.bytes(), initial, 'initial blocks')
  const sizes = sized(readByDictionary(input), count, 'sizes')
  const { block, allocatedAt, freeRequestedAt } = linked(action, distances, count, gone)
  const stack = sized(input.integers(), count, 'stacks')
  const stream = sized(input.integers(), count, 'streams')
  const pool = sized(input.integers(), count, 'pools')
  const tag = sized(input.integers(), count, 'tags')
  const names = readJson(input) as BlockNames
  const stacks = readStacks(input)
  checkBelow(stack, stacks.parent.length, 'stacks')
  for (const [name, column] of [
    ['stream', stream],
    ['pool', pool],
    ['tag', tag],
  ] as const) {
    checkBelow(column, names[name]?.length ?? 0, `names of a ${name}`)
  }
  const blocks: PictureBlocks = { count, initial, bytes: sizes, allocatedAt, freeRequestedAt, stack, stream, pool, tag }
  const steps = input.integers()
  const described = readJson(input)
  if (!Array.isArray(described)) throw damaged('policies')
  const policies = described.map(each => readPolicy(input, each, { action, block, blocks }))
  input.end()
  return { events, action, block, timeUs, blocks, names, stacks, policies, steps }
}

function checkBelow(column: Int32Array, end: number, what: string): void {
  for (const value of column) if (value < 0 || value >= end) throw damaged(what)
}

/** Programs ask for few different sizes. */
function writeByDictionary(out: PlaneWriter, values: Float64Array): void {
  const numbers = new Map<number, number>()
  const column = new Int32Array(values.length)
  for (let i = 0; i < values.length; i++) {
    let number = numbers.get(values[i])
    if (number === undefined) {
      number = numbers.size
      numbers.set(values[i], number)
    }
    column[i] = number
  }
  out.numbers([...numbers.keys()])
  out.numbers(column)
}

function readByDictionary(input: PlaneReader): Float64Array {
  const values = input.numbers()
  const column = input.integers()
  checkBelow(column, values.length, 'sizes')
  const found = new Float64Array(column.length)
  for (let i = 0; i < found.length; i++) found[i] = values[column[i]]
  return found
}

function writeStacks(out: PlaneWriter, { frames, parent, frame }: StackTree): void {
  out.text(JSON.stringify(frames.map(({ file, line, name, kind }) => [file, line, name, kind])))
  out.numbers(parent.map((above, node) => node - above))
  out.numbers(frame.map(each => each + 1))
}

function readStacks(input: PlaneReader): StackTree {
  const listed = readJson(input)
  if (!Array.isArray(listed)) throw damaged('frames')
  const frames = listed.map((each): PictureFrame => {
    const [file, line, name, kind] = each
    return { file: String(file), line, name: String(name), kind }
  })
  const parent = input.integers().map((distance, node) => node - distance)
  const frame = sized(input.integers(), parent.length, 'calls').map(each => each - 1)
  for (let node = 1; node < parent.length; node++) {
    if (parent[node] < 0 || parent[node] >= node || frame[node] < 0 || frame[node] >= frames.length) {
      throw damaged('stacks')
    }
  }
  return { frames, parent, frame }
}

function writePolicy(
  out: PlaneWriter,
  { place, parts, ranges, memory, reserved }: PolicyPicture,
  picture: Picture,
): void {
  if (place !== null) {
    // Numbers in turn for places and parts: most blocks have one place.
    const numbers = new Float64Array(place.length)
    for (let block = 0; block < place.length; block++) {
      const unit = place[block]
      numbers[block] = unit >= 0 ? 2 * unit + 1 : unit === NOWHERE ? 0 : -2 * (unit + 1)
    }
    const { position, other } = asReused(picture, numbers)
    out.numbers(position)
    out.numbers(other)
    for (const column of [parts.start, parts.at, parts.units]) out.numbers(column)
    for (const key of ['address', 'at', 'units'] as const) out.numbers(ranges.map(range => range[key]))
    for (const key of ['at', 'units'] as const) out.numbers(memory.map(each => each[key]))
    out.numbers(memory.map(({ from }) => from + 1))
    out.numbers(memory.map(({ to }) => Math.min(to, picture.events)))
  }
  out.numbers(reserved.event)
  out.numbers(reserved.bytes)
}

function readPolicy(input: PlaneReader, described: unknown, events: BlockEvents): PolicyPicture {
  const { policy, label, hasPlaces } = described as { policy: string; label: string; hasPlaces: boolean }
  if (!hasPlaces) {
    return { policy, label, place: null, parts: NO_PARTS, ranges: [], memory: [], reserved: readCurve(input) }
  }
  const { count, initial } = events.blocks
  const position = sized(input.bytes(), count - initial, 'positions')
  const places = fromReused(events, { position, other: input.numbers() })
  const place = new Int32Array(count)
  for (let block = 0; block < count; block++) {
    const number = places[block]
    place[block] = number % 2 === 1 ? (number - 1) / 2 : -1 - number / 2
  }
  const parts = { start: input.integers(), at: input.numbers(), units: input.numbers() }
  sized(parts.units, parts.at.length, 'parts')
  if (parts.start.some(start => start > parts.at.length)) throw damaged('parts')
  if (place.some(unit => unit < NOWHERE && FIRST_IN_PARTS - unit >= parts.start.length - 1)) throw damaged('places')
  const [address, at, units] = [input.numbers(), input.numbers(), input.numbers()]
  sized(at, address.length, 'places of ranges')
  sized(units, address.length, 'sizes of ranges')
  const ranges = Array.from(address, (each, i) => ({ address: each, at: at[i], units: units[i] }))
  const [start, length] = [input.numbers(), input.numbers()]
  const [from, to] = [input.integers(), input.integers()]
  for (const column of [length, from, to]) sized<ArrayLike<number>>(column, start.length, 'columns of memory')
  const memory = Array.from(start, (each, i) => ({ at: each, units: length[i], from: from[i] - 1, to: to[i] }))
  return { policy, label, place, parts, ranges, memory, reserved: readCurve(input) }
}

function readCurve(input: PlaneReader): PolicyPicture['reserved'] {
  const event = input.integers()
  return { event, bytes: sized(input.numbers(), event.length, 'reserved bytes') }
}

function readJson(input: PlaneReader): unknown {
  try {
    return JSON.parse(input.text())
  } catch (error) {
    throw error instanceof FormatError ? error : damaged('names')
  }
}
