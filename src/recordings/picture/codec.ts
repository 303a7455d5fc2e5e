// A picture as bytes, and back. A page packs the bytes with gzip. The version changes with the format; a page has its
// own viewer, so nothing reads an older one.

import { FormatError } from '../../core/base/errors.js'
import { Action, BEFORE, NEVER } from '../trace/trace.js'
import { PlaneReader, PlaneWriter } from './byte-planes.js'
import {
  type BlockNames,
  FIRST_IN_PARTS,
  NOWHERE,
  type Picture,
  type PictureBlocks,
  type PictureFrame,
  type PolicyPicture,
  type StackTree,
} from './picture.js'
import { NO_PARTS } from './policy-picture.js'

const MAGIC = 'cuda-mempool picture'
const VERSION = 2
/** No recording that a page can show has more events or blocks. */
const MOST_ZEROS = 2 ** 28

/** The picture as bytes, not packed. */
export function encodePicture(picture: Picture): Uint8Array {
  const { events, action, block, timeUs, blocks, names, stacks, policies, steps } = picture
  const out = new PlaneWriter()
  out.text(MAGIC)
  out.numbers([VERSION, events, blocks.count, blocks.initial])
  out.numbers(action)
  out.numbers(freeDistances(picture))
  out.numbers(timeUs.map((time, event) => (event === 0 ? time : time - timeUs[event - 1])))
  const goneBefore = Array.from({ length: blocks.initial }, (_, i) => (blocks.freeRequestedAt[i] === BEFORE ? 1 : 0))
  out.numbers(goneBefore)
  writeByDictionary(out, blocks.bytes)
  for (const column of [blocks.stack, blocks.stream, blocks.pool, blocks.tag]) out.numbers(column)
  out.text(JSON.stringify(names))
  writeStacks(out, stacks)
  out.numbers(steps)
  out.text(JSON.stringify(policies.map(({ policy, label, place }) => ({ policy, label, hasPlaces: place !== null }))))
  for (const policy of policies) writePolicy(out, policy, block.length)
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
  const timeUs = sized(input.numbers(), events, 'times')
  for (let event = 1; event < events; event++) timeUs[event] += timeUs[event - 1]
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
  const policies = described.map(each => readPolicy(input, each, count))
  input.end()
  return { events, action, block, timeUs, blocks, names, stacks, policies, steps }
}

function damaged(what: string): FormatError {
  return new FormatError(`the picture is damaged: ${what}`)
}

function sized<T extends { readonly length: number }>(column: T, length: number, what: string): T {
  if (column.length !== length) throw damaged(`${column.length} ${what} instead of ${length}`)
  return column
}

function checkBelow(column: Int32Array, end: number, what: string): void {
  for (const value of column) if (value < 0 || value >= end) throw damaged(what)
}

/** For each free how many blocks ago its block was allocated. */
function freeDistances({ events, action, block, blocks }: Picture): number[] {
  const distances: number[] = []
  let next = blocks.initial
  for (let event = 0; event < events; event++) {
    if (action[event] === Action.alloc) next++
    else if (action[event] === Action.freeRequested) distances.push(next - block[event])
  }
  return distances
}

/** The inverse of `freeDistances`, with the events of each block. */
function linked(action: Uint8Array, distances: Int32Array, count: number, gone: Uint8Array) {
  const block = new Int32Array(action.length).fill(-1)
  const allocatedAt = new Int32Array(count).fill(BEFORE)
  const freeRequestedAt = new Int32Array(count).fill(NEVER)
  let [next, frees] = [gone.length, 0]
  gone.forEach((isGone, i) => {
    if (isGone === 1) freeRequestedAt[i] = BEFORE
  })
  for (let event = 0; event < action.length; event++) {
    if (action[event] === Action.alloc) {
      if (next === count) throw damaged('allocations')
      allocatedAt[next] = event
      block[event] = next++
    } else if (action[event] === Action.freeRequested) {
      const freed = next - distances[frees++]
      if (!(freed >= 0 && freed < next) || freeRequestedAt[freed] !== NEVER) throw damaged('frees')
      freeRequestedAt[freed] = event
      block[event] = freed
    } else if (action[event] > Action.snapshot) throw damaged('kinds of events')
  }
  if (next !== count || frees !== distances.length) throw damaged('blocks')
  return { block, allocatedAt, freeRequestedAt }
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
  events: number,
): void {
  if (place !== null) {
    // Numbers in turn for places and parts: most blocks have one place.
    out.numbers(Float64Array.from(place, unit => (unit >= 0 ? 2 * unit + 1 : unit === NOWHERE ? 0 : -2 * (unit + 1))))
    for (const column of [parts.start, parts.at, parts.units]) out.numbers(column)
    for (const key of ['address', 'at', 'units'] as const) out.numbers(ranges.map(range => range[key]))
    for (const key of ['at', 'units'] as const) out.numbers(memory.map(each => each[key]))
    out.numbers(memory.map(({ from }) => from + 1))
    out.numbers(memory.map(({ to }) => Math.min(to, events)))
  }
  out.numbers(reserved.event)
  out.numbers(reserved.bytes)
}

function readPolicy(input: PlaneReader, described: unknown, count: number): PolicyPicture {
  const { policy, label, hasPlaces } = described as { policy: string; label: string; hasPlaces: boolean }
  if (!hasPlaces) {
    return { policy, label, place: null, parts: NO_PARTS, ranges: [], memory: [], reserved: readCurve(input) }
  }
  const places = sized(input.numbers(), count, 'places')
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
