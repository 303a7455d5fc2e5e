// Recordings of each format for random tests. A test chooses how many values are odd, and whether bytes are damaged.

import type { Random } from '../src/core/base/random.js'
import { Op } from '../src/recordings/trace/pytorch/pickle-opcodes.js'

/** Values that no writer writes, or only at the edge of what it may. */
const ODD: readonly unknown[] = [
  ...[-1, 0, 0.5, 1, 255, 2 ** 31, 2 ** 32, 2 ** 52, 2 ** 53 - 1, 2 ** 53, 2 ** 64, 1e300, -1e300],
  ...[null, true, '', 'alloc', 'x'.repeat(70), '\u0000\n"', '__proto__', '-1', '1e999', '0x10', '9'.repeat(40)],
  ...[[], {}, [1], [[]], { toString: 1 }, { action: 'alloc' }, { filename: 'f', line: 1, name: 'g' }],
]
const BLOCKS = 6
const PAGE = 2 ** 21

/** Makes the values of one recording: `chance` is how likely each is an odd one. */
class Values {
  constructor(
    readonly random: Random,
    private readonly chance: number,
  ) {}

  some<T>(value: T): T {
    return this.random.fraction() < this.chance ? (ODD[this.random.below(ODD.length)] as T) : value
  }

  one<T>(values: readonly T[]): T {
    return values[this.random.below(values.length)]
  }

  /** A dictionary, whose values and names may be odd. */
  dictionary(entries: Record<string, unknown>): Record<string, unknown> {
    const kept = Object.entries(entries).filter(() => this.random.fraction() >= this.chance)
    const named = (name: string) => {
      const odd = this.some<unknown>(name)
      return typeof odd === 'string' ? odd : name
    }
    return Object.fromEntries(kept.map(([name, value]) => [named(name), this.some(value)]))
  }
}

/** A program over few blocks: each is allocated, and freed later. */
function* program(values: Values): Generator<{ slot: number; size: number; kind: number; stream: number; at: number }> {
  const { random } = values
  const state = new Array<number>(BLOCKS).fill(0)
  const sizes = state.map(() => 512 * (1 + random.below(9000)))
  for (let at = 0, end = random.below(60); at < end; at++) {
    const slot = random.below(BLOCKS)
    yield { slot, size: sizes[slot], kind: state[slot], stream: random.below(3), at }
    state[slot] = (state[slot] + 1) % 3
  }
}

const KINDS = ['alloc', 'free_requested', 'free_completed']
const OTHERS = ['segment_alloc', 'segment_free', 'segment_map', 'segment_unmap', 'oom', 'snapshot', 'annotate']

function snapshot(values: Values): unknown {
  const { random } = values
  const frame = () =>
    values.dictionary({ filename: values.one(['a.py', 'torch/b.py']), line: random.below(9), name: 'f' })
  const shared = [frame(), frame()]
  const frames = () => values.one([[], shared, [frame(), ...shared]])
  const own = () => ({ user_metadata: 'm', tag: 't', pool_id: [0, random.below(2)], granted: 20 * PAGE })
  const events: unknown[] = []
  for (const { slot, size, kind, stream, at } of program(values)) {
    const extra = random.below(4) === 0 ? own() : {}
    const event = { action: KINDS[kind], addr: PAGE * (9 + 2 * slot), size, stream, time_us: at, frames: frames() }
    events.push(values.some(values.dictionary({ ...event, ...extra })))
    if (random.below(4) > 0) continue
    const other = { action: values.one(OTHERS), addr: PAGE * (9 + slot), size: PAGE, stream, time_us: at }
    events.push(values.dictionary({ ...other, device_free: PAGE * random.below(9) }))
  }
  const block = (address: number) => ({
    ...own(),
    address,
    size: PAGE / 2,
    requested_size: 9,
    state: 'active_allocated',
  })
  const segments = Array.from({ length: random.below(4) }, (_, i) => {
    const address = PAGE * (100 + i)
    const blocks = random.below(2) === 0 ? [] : [values.dictionary({ ...block(address), frames: frames() })]
    const ends = { device: 0, address, total_size: PAGE, stream: 0, is_expandable: random.below(2) === 0 }
    return values.dictionary({ ...ends, blocks })
  })
  const mark = (stage: string, time: number) => values.dictionary({ stage, name: 'Optimizer.step#A', time_us: time })
  return values.dictionary({
    device_traces: values.one([[events], [[], events], [events, []]]),
    segments: values.some(segments),
    external_annotations: [mark('START', 3), mark('END', 9)],
    allocator_settings: { PYTORCH_CUDA_ALLOC_CONF: values.one(['', 'max_split_size_mb:64', 'a:[b', ':', '[,']) },
    blocks_before: [values.dictionary({ addr: 2 ** 45, size: 512, stream: 0, frames: [] })],
  })
}

function profile(values: Values): unknown {
  const { random } = values
  const events: unknown[] = []
  for (const { slot, size, kind, at } of program(values)) {
    const bytes = kind === 0 ? size : -size
    const args = {
      'Device Type': random.below(8) === 0 ? 0 : 1,
      'Device Id': 0,
      Addr: 4096 * slot + 4096,
      Bytes: bytes,
    }
    const name = random.below(9) === 0 ? '[OutOfMemory]' : '[memory]'
    const place = { ph: 'i', ts: at, pid: 1, tid: random.below(2) }
    events.push(
      values.some(values.dictionary({ name, ...place, args: values.dictionary({ ...args, 'Total Reserved': 9 }) })),
    )
    if (random.below(3) > 0) continue
    const cat = values.one(['cpu_op', 'python_function', 'user_annotation', 'kernel'])
    events.push(values.dictionary({ ...place, ph: 'X', cat, name: 'model.py(3): forward', dur: random.below(9) }))
  }
  return random.below(2) === 0 ? events : values.dictionary({ schemaVersion: 1, traceEvents: events })
}

/** A value as text, an object as JSON. */
export function fieldText(value: unknown): string {
  return typeof value === 'object' ? JSON.stringify(value) : String(value)
}

function csv(header: string, rows: readonly (readonly unknown[])[]): string {
  return [header, ...rows.map(row => row.map(fieldText).join())].join('\n')
}

function rmm(values: Values): string {
  const rows: unknown[][] = []
  for (const { slot, size, kind, stream, at } of program(values)) {
    const time = values.one([`1${at % 10}:00:0${at % 10}.5`, `${at}.25`, '23:59:59:999999'])
    const action = values.one([['allocate', 'free', 'deallocate'][kind], 'allocate failure'])
    rows.push(
      [1, time, action, `0x${(4096 * slot + 4096).toString(16)}`, size, `0x${stream}`].map(each => values.some(each)),
    )
  }
  return csv('Thread,Time,Action,Pointer,Size,Stream', rows)
}

export const NSIGHT_COLUMNS = [
  ...['start', 'globalPid', 'deviceId', 'memKind', 'address', 'bytes', 'memoryOperationType', 'streamId'],
  ...['localMemoryPoolAddress', 'localMemoryPoolSize'],
]

export function nsightRows(random: Random, chance: number): unknown[][] {
  const values = new Values(random, chance)
  const rows: unknown[][] = []
  for (const { slot, size, kind, stream, at } of program(values)) {
    const pool = random.below(2)
    const row = [at * 100, 7 + pool, 0, values.one([2, 2, 2, 3, 1]), 4096 * slot, size, Math.min(kind, 1), stream]
    rows.push([...row, pool, pool * 4096].map(each => values.some(each)))
  }
  return rows
}

/** Pickles data by opcodes that are chosen at random among those which say the same. */
function pickled(value: unknown, random: Random): Buffer {
  const parts: number[] = [Op.PROTO, 2 + random.below(4)]
  const memo = new Map<unknown, number>()
  let memoized = 0
  const pick = (...choices: (() => void)[]) => choices[random.below(choices.length)]()
  /** An opcode and an operand of `count` bytes. */
  const wide = (opcode: number, count: number, number: number) => {
    const buffer = Buffer.alloc(8)
    buffer.writeBigUInt64LE(BigInt(number))
    parts.push(opcode, ...buffer.subarray(0, count))
  }
  const memoize = (of?: unknown) => {
    if (random.below(2) === 0 && typeof of !== 'object') return
    if (typeof of === 'object') memo.set(of, memoized)
    const short = memoized < 256 ? [() => parts.push(Op.BINPUT, memoized)] : []
    const long = () => wide(Op.LONG_BINPUT, 4, memoized)
    pick(() => parts.push(Op.MEMOIZE), long, ...short)
    memoized++
  }
  const text = (of: string) => {
    const utf8 = Buffer.from(of)
    const short = () => parts.push(Op.SHORT_BINUNICODE, utf8.length)
    const plain = () => wide(Op.BINUNICODE, 4, utf8.length)
    const long = () => wide(Op.BINUNICODE8, 8, utf8.length)
    pick(plain, long, ...(utf8.length < 256 ? [short, short] : []))
    parts.push(...utf8)
    memoize()
  }
  const number = (of: number) => {
    const float = Buffer.alloc(8)
    float.writeDoubleBE(of)
    const asFloat = () => parts.push(Op.BINFLOAT, ...float)
    if (!Number.isSafeInteger(of) || of < 0) asFloat()
    else if (of < 256 && random.below(2) === 0) parts.push(Op.BININT1, of)
    else if (of < 2 ** 31 && random.below(2) === 0) wide(Op.BININT, 4, of)
    else {
      parts.push(Op.LONG1)
      wide(8, 8, of)
    }
  }
  const list = (of: readonly unknown[]) => {
    parts.push(Op.EMPTY_LIST)
    memoize(of)
    // As Python does.
    if (of.length > 1) parts.push(Op.MARK)
    for (const item of of) save(item)
    if (of.length > 0) parts.push(of.length > 1 ? Op.APPENDS : Op.APPEND)
  }
  const dictionary = (of: object) => {
    parts.push(Op.EMPTY_DICT)
    memoize(of)
    parts.push(Op.MARK)
    for (const [key, item] of Object.entries(of)) {
      text(key)
      save(item)
    }
    parts.push(Op.SETITEMS)
  }
  const save = (each: unknown): void => {
    const known = memo.get(each)
    if (known !== undefined) wide(Op.LONG_BINGET, 4, known)
    else if (each === null || each === undefined) parts.push(Op.NONE)
    else if (typeof each === 'boolean') parts.push(each ? Op.NEWTRUE : Op.NEWFALSE)
    else if (typeof each === 'number') number(each)
    else if (typeof each === 'string') text(each)
    else if (Array.isArray(each)) list(each)
    else dictionary(each as object)
  }
  save(value)
  return Buffer.from([...parts, Op.STOP])
}

type Make = (random: Random, chance: number) => Buffer

/** Makes a recording of each format that is bytes; `chance` is how likely each value is odd. */
export const MAKERS: Readonly<Record<string, Make>> = {
  pickle: (random, chance) => pickled(snapshot(new Values(random, chance)), random),
  'JSON snapshot': (random, chance) => Buffer.from(JSON.stringify(snapshot(new Values(random, chance)))),
  'torch.profiler': (random, chance) => Buffer.from(JSON.stringify(profile(new Values(random, chance)))),
  'RMM CSV': (random, chance) => Buffer.from(rmm(new Values(random, chance))),
  'Nsight CSV': (random, chance) => Buffer.from(csv(NSIGHT_COLUMNS.join(), nsightRows(random, chance))),
}

/** Parts that damage the structure of a format more than random bytes do. */
const PARTS = [
  ...[
    '"',
    ',',
    '\n',
    '[',
    '{',
    '}',
    ']',
    '\\',
    '-',
    '0x',
    '9'.repeat(400),
    'null',
    '{"traceEvents":[',
    '\0',
    '(',
    't',
    '.',
  ],
  ...[
    '1e999',
    'h\0',
    '\x94',
    '\x8a\xff',
    '\x8d\xff\xff\xff\xff\xff\xff\xff\x7f',
    'cos\nsystem\n',
    '\xef\xbb\xbf',
    '""',
  ],
]

/** A copy with one to four changes: bytes replaced, removed, repeated, put in, or taken from another file. */
export function damaged(bytes: Buffer, other: Buffer, random: Random): Buffer {
  let result = Buffer.from(bytes)
  for (let changes = 1 + random.below(4); changes > 0; changes--) {
    const at = random.below(result.length + 1)
    const end = Math.min(result.length, at + random.below(64))
    const before = result.subarray(0, at)
    const from = random.below(other.length + 1)
    const changed = [
      () => Buffer.concat([before, result.subarray(end)]),
      () => Buffer.concat([result.subarray(0, end), result.subarray(at)]),
      () => Buffer.concat([before, Buffer.from(PARTS[random.below(PARTS.length)], 'latin1'), result.subarray(at)]),
      () => before,
      () => Buffer.concat([before, other.subarray(from, from + random.below(99)), result.subarray(end)]),
      () => Buffer.concat([before, Buffer.from([random.below(256)]), result.subarray(at + 1)]),
      () => Buffer.concat([before, Buffer.from([(result[at] ?? 0) ^ (1 << random.below(8))]), result.subarray(at + 1)]),
    ]
    result = changed[random.below(changed.length)]()
  }
  return result
}
