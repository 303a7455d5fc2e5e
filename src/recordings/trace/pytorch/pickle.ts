// A reader of Python pickles that hold only data, like PyTorch's memory snapshots. It reads protocols 2 to 5, and of
// their opcodes only those that make plain values. It has no opcode that can call a function, so it cannot run code.
// A pickle that tries is refused with the name of the function.
//
// Built for files of hundreds of megabytes. A dictionary or list is made when its items arrive, all at once. So the
// caller can turn a dictionary into a smaller value (`dictionary`) before the next one is read. Until then a
// placeholder is on the stack and in the memo. Every length is compared with the rest of the file before memory is
// allocated, and no function recurses. So neither a short nor a deeply nested file can exhaust memory.

import { FormatError } from '../../../core/base/errors.js'
import {
  APPEND,
  APPENDS,
  BINFLOAT,
  BINGET,
  BININT,
  BININT1,
  BININT2,
  BINPUT,
  BINUNICODE,
  BINUNICODE8,
  BYTEARRAY8,
  EMPTY_DICT,
  EMPTY_LIST,
  EMPTY_TUPLE,
  FRAME,
  LONG_BINGET,
  LONG_BINPUT,
  LONG1,
  MARK,
  MEMOIZE,
  NEWFALSE,
  NEWTRUE,
  NONE,
  PROTO,
  SETITEM,
  SETITEMS,
  SHORT_BINUNICODE,
  STOP,
  TUPLE,
  TUPLE1,
  TUPLE2,
  TUPLE3,
} from './pickle-opcodes.js'
import { littleEndian, longLittleEndian, TextCache, u32, u64 } from './pickle-values.js'

type Build = (items: readonly unknown[], from: number, to: number) => unknown

interface PickleOptions {
  /**
   * Makes the value for a dictionary of the items `items[from]` to `items[to - 1]`: key, value, key, value.
   * `undefined` makes an object without a prototype, as without this option.
   */
  readonly dictionary?: Build
  /** makes the value for a list; for a list of 1000 items or more, `items` may be only the first part */
  readonly list?: Build
  /** keys and texts that the file often has; ASCII */
  readonly expected?: readonly string[]
  /** called from time to time with the number of bytes read */
  readonly onProgress?: (bytesRead: number) => void
}

const PROGRESS_BYTES = 1 << 20
/** With more entries than this, V8 ends the process instead of growing an array. */
const MOST_ENTRIES = 100_000_000
const DEEPEST = 1000
/**
 * A memory snapshot has at least this many bytes for each container, memo entry and waiting value; a malicious file
 * has fewer.
 */
const LEAST_BYTES_A_CONTAINER = 16
const LEAST_BYTES_A_MEMO_ENTRY = 4
const LEAST_BYTES_A_WAITING_VALUE = 16

/** Bytes of fixed length after an opcode; for texts and long integers, their length field. */
const OPERAND_BYTES = new Uint8Array(256)
for (const op of [BININT1, BINGET, BINPUT, PROTO, LONG1, SHORT_BINUNICODE]) OPERAND_BYTES[op] = 1
OPERAND_BYTES[BININT2] = 2
for (const op of [BININT, BINUNICODE, LONG_BINGET, LONG_BINPUT]) OPERAND_BYTES[op] = 4
for (const op of [BINFLOAT, BINUNICODE8, FRAME, BYTEARRAY8]) OPERAND_BYTES[op] = 8

/** Opcodes that import or call. GLOBAL, INST and STACK_GLOBAL name the function; the others act on it. */
const CALLING: Readonly<Record<number, string>> = {
  99: 'GLOBAL',
  105: 'INST',
  147: 'STACK_GLOBAL',
  82: 'REDUCE',
  98: 'BUILD',
  111: 'OBJ',
  129: 'NEWOBJ',
  146: 'NEWOBJ_EX',
  130: 'EXT1',
  131: 'EXT2',
  132: 'EXT4',
  80: 'PERSID',
  81: 'BINPERSID',
}

/**
 * Containers without items. The first two are open: items may still arrive. The others have been used as they are.
 */
const OPEN_DICT = Object.freeze(Object.create(null))
const OPEN_LIST: readonly unknown[] = Object.freeze([])
const CLOSED_DICT = Object.freeze(Object.create(null))
const CLOSED_LIST: readonly unknown[] = Object.freeze([])

/**
 * Reads one pickle that fills `bytes`. Dictionaries become objects without a prototype, or the value of `dictionary`.
 * Lists and tuples become arrays, and bytearrays Uint8Array. Integers above 2^53 become the nearest number. Values
 * shared in the file are shared. Throws FormatError with the byte offset for anything else.
 */
export function readPickle(bytes: Buffer, options: PickleOptions = {}): unknown {
  const { dictionary = plain, list = plain, expected = [], onProgress } = options
  const end = bytes.length
  const texts = new TextCache(bytes, expected)
  const memo: unknown[] = []
  const stack: unknown[] = []
  let top = 0
  /** by place of an open container on the stack: its place in the memo, or -1 */
  let memoOf = new Int32Array(1024)
  const marks: number[] = []
  /** the stack below this belongs to containers that wait for their items */
  let floor = 0
  let containers = 0
  const mostContainers = most(end, LEAST_BYTES_A_CONTAINER)
  const mostMemo = most(end, LEAST_BYTES_A_MEMO_ENTRY)
  const mostStack = most(end, LEAST_BYTES_A_WAITING_VALUE)
  let at = 0
  let nextProgress = PROGRESS_BYTES

  const fail = (offset: number, fact: string) => new FormatError(`${fact} at byte ${offset}`)
  const tooMany = (offset: number, what: string) => fail(offset, `more ${what} than a snapshot of this size has,`)
  const truncated = () => new FormatError(`the pickle is truncated: it should go on after byte ${end}`)

  while (at < end) {
    const start = at
    const op = bytes[at++]
    const operand = at
    at += OPERAND_BYTES[op]
    if (at > end) break
    if (top > mostStack) throw tooMany(start, 'values waiting')
    switch (op) {
      case BINGET:
      case LONG_BINGET: {
        const index = op === BINGET ? bytes[operand] : u32(bytes, operand)
        if (index >= memo.length) throw fail(start, `memo entry ${index} was never stored,`)
        let value = memo[index]
        if (value === OPEN_DICT) memo[index] = value = CLOSED_DICT
        else if (value === OPEN_LIST) memo[index] = value = CLOSED_LIST
        stack[top++] = value
        break
      }
      case BININT1:
        stack[top++] = bytes[operand]
        break
      case LONG1: {
        const length = bytes[operand]
        if (length > end - at) throw truncated()
        const value = length <= 8 ? littleEndian(bytes, at, length) : longLittleEndian(bytes, at, length)
        if (!Number.isFinite(value)) throw fail(start, `an integer of ${length} bytes`)
        stack[top++] = value
        at += length
        break
      }
      case MEMOIZE:
      case BINPUT:
      case LONG_BINPUT: {
        if (top === floor) throw fail(start, 'nothing to memoize')
        const index = op === MEMOIZE ? memo.length : op === BINPUT ? bytes[operand] : u32(bytes, operand)
        if (index > memo.length) throw fail(start, `memo entry ${index} leaves a gap,`)
        if (index > mostMemo) throw tooMany(start, 'memo entries')
        const value = stack[top - 1]
        memo[index] = value
        if (value === OPEN_DICT || value === OPEN_LIST) memoOf[top - 1] = index
        break
      }
      case BININT:
        stack[top++] = u32(bytes, operand) | 0
        break
      case MARK:
        if (marks.length === DEEPEST) throw fail(start, `containers more than ${DEEPEST} deep`)
        marks.push(floor)
        floor = top
        break
      case SHORT_BINUNICODE:
      case BINUNICODE:
      case BINUNICODE8: {
        const length =
          op === SHORT_BINUNICODE ? bytes[operand] : op === BINUNICODE ? u32(bytes, operand) : u64(bytes, operand)
        if (length > end - at) throw truncated()
        stack[top++] = texts.read(at, length)
        at += length
        break
      }
      case EMPTY_DICT:
      case EMPTY_LIST:
        if (top >= memoOf.length) memoOf = doubled(memoOf)
        memoOf[top] = -1
        stack[top++] = op === EMPTY_DICT ? OPEN_DICT : OPEN_LIST
        break
      case SETITEM:
      case SETITEMS: {
        const from = op === SETITEM ? top - 2 : floor
        if (op === SETITEMS) floor = marks.pop() ?? 0
        if (from <= floor) throw fail(start, 'items without a dictionary')
        if ((top - from) % 2 !== 0) throw fail(start, 'a key without a value')
        for (let key = from; key < top; key += 2) {
          if (typeof stack[key] !== 'string') throw fail(start, 'a dictionary with a key that is not text,')
        }
        const place = from - 1
        let dict = stack[place]
        if (dict === OPEN_DICT && top > from) {
          dict = dictionary(stack, from, top)
          if (dict === undefined) {
            if (++containers > mostContainers) throw tooMany(start, 'containers')
            dict = plainDictionary(stack, from, top)
          }
          stack[place] = dict
          if (memoOf[place] >= 0) {
            if (memo[memoOf[place]] !== OPEN_DICT) throw fail(start, 'a dictionary that holds itself,')
            memo[memoOf[place]] = dict
          }
        } else if (isPlainDictionary(dict)) {
          addItems(dict, stack, from, top)
        } else if (dict !== OPEN_DICT) {
          throw fail(start, 'items for something that is no dictionary,')
        }
        top = from
        if (at >= nextProgress) {
          nextProgress = at + PROGRESS_BYTES
          onProgress?.(at)
        }
        break
      }
      case APPEND:
      case APPENDS: {
        const from = op === APPEND ? top - 1 : floor
        if (op === APPENDS) floor = marks.pop() ?? 0
        if (from <= floor) throw fail(start, 'items without a list')
        const place = from - 1
        const target = stack[place]
        if (target === OPEN_LIST && top > from) {
          let items = list(stack, from, top)
          if (items === undefined) {
            if (++containers > mostContainers) throw tooMany(start, 'containers')
            items = stack.slice(from, top)
          }
          stack[place] = items
          if (memoOf[place] >= 0) {
            if (memo[memoOf[place]] !== OPEN_LIST) throw fail(start, 'a list that holds itself,')
            memo[memoOf[place]] = items
          }
        } else if (Array.isArray(target) && target !== OPEN_LIST && target !== CLOSED_LIST) {
          for (let item = from; item < top; item++) target.push(stack[item])
        } else if (target !== OPEN_LIST) {
          throw fail(start, 'items for something that is no list,')
        }
        top = from
        break
      }
      case BININT2:
        stack[top++] = bytes[operand] | (bytes[operand + 1] << 8)
        break
      case TUPLE:
      case TUPLE1:
      case TUPLE2:
      case TUPLE3: {
        const from = op === TUPLE ? floor : top - (op - TUPLE1 + 1)
        if (op === TUPLE) {
          if (marks.length === 0) throw fail(start, 'a tuple without its beginning')
          floor = marks.pop()!
        }
        if (from < floor) throw fail(start, 'a tuple without its items')
        if (++containers > mostContainers) throw tooMany(start, 'containers')
        stack[from] = stack.slice(from, top)
        top = from + 1
        break
      }
      case EMPTY_TUPLE:
        stack[top++] = CLOSED_LIST
        break
      case NONE:
        stack[top++] = null
        break
      case NEWTRUE:
        stack[top++] = true
        break
      case NEWFALSE:
        stack[top++] = false
        break
      case BINFLOAT:
        stack[top++] = bytes.readDoubleBE(operand)
        break
      case BYTEARRAY8: {
        const length = u64(bytes, operand)
        if (length > end - at) throw truncated()
        if (++containers > mostContainers) throw tooMany(start, 'containers')
        stack[top++] = bytes.subarray(at, at + length)
        at += length
        break
      }
      case FRAME:
        if (u64(bytes, operand) > end - at) throw truncated()
        break
      case PROTO:
        if (bytes[operand] < 2 || bytes[operand] > 5) {
          throw fail(start, `pickle protocol ${bytes[operand]}; 2 to 5 are read,`)
        }
        break
      case STOP:
        if (top !== 1 || marks.length > 0) throw fail(start, 'the pickle stops with values left over')
        if (at !== end) throw fail(at, `${end - at} bytes follow the end of the pickle`)
        return stack[0]
      default:
        throw fail(start, refusal(op, bytes, at, stack, top))
    }
  }
  throw truncated()
}

function most(fileBytes: number, leastBytesEach: number): number {
  return Math.min(MOST_ENTRIES, 4096 + fileBytes / leastBytesEach) | 0
}

const plain: Build = () => undefined

function plainDictionary(items: readonly unknown[], from: number, to: number): object {
  const dict = Object.create(null)
  addItems(dict, items, from, to)
  return dict
}

function addItems(dict: Record<string, unknown>, items: readonly unknown[], from: number, to: number): void {
  for (let key = from; key < to; key += 2) dict[items[key] as string] = items[key + 1]
}

function isPlainDictionary(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === null && !Object.isFrozen(value)
}

function doubled(array: Int32Array): Int32Array<ArrayBuffer> {
  const larger = new Int32Array(array.length * 2)
  larger.set(array)
  return larger
}

/** The reason why an opcode is refused. */
function refusal(op: number, bytes: Buffer, at: number, stack: readonly unknown[], top: number): string {
  const opcode = CALLING[op]
  if (opcode === undefined) return `0x${op.toString(16).padStart(2, '0')} is no opcode of a memory snapshot,`
  let called = 'code'
  if (opcode === 'GLOBAL' || opcode === 'INST') {
    called = bytes
      .toString('latin1', at, at + 400)
      .split('\n', 2)
      .join('.')
  } else if (typeof stack[top - 2] === 'string' && typeof stack[top - 1] === 'string' && opcode === 'STACK_GLOBAL') {
    called = `${stack[top - 2]}.${stack[top - 1]}`
  }
  const shown = called.replace(/[^\x21-\x7e() ]/g, '?').slice(0, 200)
  return `refused: this pickle would call ${shown}; a memory snapshot holds only data (${opcode})`
}
