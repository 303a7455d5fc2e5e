// A reader of Python pickles that hold only data, like PyTorch's memory snapshots. It reads protocols 2 to 5, and of
// their opcodes only those that make plain values. It has no opcode that can call a function, so it cannot run code.
// A pickle that tries is refused with the name of the function.
//
// Built for files of hundreds of megabytes. A dictionary or list is made when its items arrive, all at once. So the
// caller can turn a dictionary into a smaller value (`dictionary`) before the next one is read. Until then a
// placeholder is on the stack and in the memo. Every length is compared with the rest of the file before memory is
// allocated, and no function recurses. So neither a short nor a deeply nested file can exhaust memory.

import { FormatError } from '../../../core/base/errors.js'
import { Op } from './pickle-opcodes.js'
import { littleEndian, longLittleEndian, TextCache, unsigned } from './pickle-values.js'

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
for (const op of [Op.BININT1, Op.BINGET, Op.BINPUT, Op.PROTO, Op.LONG1, Op.SHORT_BINUNICODE]) OPERAND_BYTES[op] = 1
OPERAND_BYTES[Op.BININT2] = 2
for (const op of [Op.BININT, Op.BINUNICODE, Op.LONG_BINGET, Op.LONG_BINPUT]) OPERAND_BYTES[op] = 4
for (const op of [Op.BINFLOAT, Op.BINUNICODE8, Op.FRAME, Op.BYTEARRAY8]) OPERAND_BYTES[op] = 8

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
/** The values of opcodes that always push the same. */
const CONSTANTS: Readonly<Record<number, unknown>> = {
  [Op.EMPTY_TUPLE]: CLOSED_LIST,
  [Op.NONE]: null,
  [Op.NEWTRUE]: true,
  [Op.NEWFALSE]: false,
}

/**
 * Reads one pickle that fills `bytes`. Dictionaries become objects without a prototype, or the value of `dictionary`.
 * Lists and tuples become arrays, and bytearrays Uint8Array. Integers above 2^53 become the nearest number. Values
 * shared in the file are shared. Throws FormatError with the byte offset for anything else.
 */
export function readPickle(bytes: Buffer, options: PickleOptions = {}): unknown {
  return new PickleReader(bytes, options).read()
}

/** The stack machine that a pickle is a program for. */
class PickleReader {
  private readonly dictionary: Build
  private readonly list: Build
  private readonly onProgress: ((bytesRead: number) => void) | undefined
  private readonly texts: TextCache
  private readonly end: number
  private readonly stack: unknown[] = []
  private top = 0
  private readonly memo: unknown[] = []
  /** by place of an open container on the stack: its place in the memo, or -1 */
  private memoOf = new Int32Array(1024)
  private readonly marks: number[] = []
  /** the stack below this belongs to containers that wait for their items */
  private floor = 0
  private containers = 0
  private at = 0
  /** of the opcode that is being read */
  private start = 0
  private nextProgress = PROGRESS_BYTES
  private readonly mostContainers: number
  private readonly mostMemo: number

  constructor(
    private readonly bytes: Buffer,
    { dictionary = plain, list = plain, expected = [], onProgress }: PickleOptions,
  ) {
    this.dictionary = dictionary
    this.list = list
    this.onProgress = onProgress
    this.texts = new TextCache(bytes, expected)
    this.end = bytes.length
    this.mostContainers = most(this.end, LEAST_BYTES_A_CONTAINER)
    this.mostMemo = most(this.end, LEAST_BYTES_A_MEMO_ENTRY)
  }

  read(): unknown {
    const { bytes, end, stack } = this
    const mostStack = most(end, LEAST_BYTES_A_WAITING_VALUE)
    while (this.at < end) {
      const start = this.at
      const op = bytes[start]
      const length = OPERAND_BYTES[op]
      this.start = start
      this.at = start + 1 + length
      if (this.at > end) break
      if (this.top > mostStack) throw this.tooMany('values waiting')
      const operand = unsigned(bytes, start + 1, length)
      switch (op) {
        case Op.BINGET:
        case Op.LONG_BINGET:
          this.get(operand)
          break
        case Op.BININT1:
        case Op.BININT2:
          stack[this.top++] = operand
          break
        case Op.LONG1:
          this.long(operand)
          break
        case Op.MEMOIZE:
          this.memoize(this.memo.length)
          break
        case Op.BINPUT:
        case Op.LONG_BINPUT:
          this.memoize(operand)
          break
        case Op.BININT:
          stack[this.top++] = operand | 0
          break
        case Op.MARK:
          this.mark()
          break
        case Op.SHORT_BINUNICODE:
        case Op.BINUNICODE:
        case Op.BINUNICODE8:
          this.text(operand)
          break
        case Op.EMPTY_DICT:
          this.open(OPEN_DICT)
          break
        case Op.EMPTY_LIST:
          this.open(OPEN_LIST)
          break
        case Op.SETITEM:
          this.setItems(this.top - 2)
          break
        case Op.SETITEMS:
          this.setItems(this.unmark())
          break
        case Op.APPEND:
          this.append(this.top - 1)
          break
        case Op.APPENDS:
          this.append(this.unmark())
          break
        case Op.TUPLE:
          if (this.marks.length === 0) throw this.fail('a tuple without its beginning')
          this.tuple(this.unmark())
          break
        case Op.TUPLE1:
        case Op.TUPLE2:
        case Op.TUPLE3:
          this.tuple(this.top - (op - Op.TUPLE1 + 1))
          break
        case Op.EMPTY_TUPLE:
        case Op.NONE:
        case Op.NEWTRUE:
        case Op.NEWFALSE:
          stack[this.top++] = CONSTANTS[op]
          break
        case Op.BINFLOAT:
          stack[this.top++] = bytes.readDoubleBE(start + 1)
          break
        case Op.BYTEARRAY8:
          this.byteArray(operand)
          break
        case Op.FRAME:
          this.checkLength(operand)
          break
        case Op.PROTO:
          if (operand < 2 || operand > 5) throw this.fail(`pickle protocol ${operand}; 2 to 5 are read,`)
          break
        case Op.STOP:
          return this.stop()
        default:
          throw this.fail(refusal(op, bytes, this.at, stack, this.top))
      }
    }
    throw this.truncated()
  }

  private get(index: number): void {
    const { memo } = this
    if (index >= memo.length) throw this.fail(`memo entry ${index} was never stored,`)
    let value = memo[index]
    if (value === OPEN_DICT) memo[index] = value = CLOSED_DICT
    else if (value === OPEN_LIST) memo[index] = value = CLOSED_LIST
    this.stack[this.top++] = value
  }

  private memoize(index: number): void {
    const { memo, top } = this
    if (top === this.floor) throw this.fail('nothing to memoize')
    if (index > memo.length) throw this.fail(`memo entry ${index} leaves a gap,`)
    if (index > this.mostMemo) throw this.tooMany('memo entries')
    const value = this.stack[top - 1]
    memo[index] = value
    if (value === OPEN_DICT || value === OPEN_LIST) this.memoOf[top - 1] = index
  }

  private long(length: number): void {
    const from = this.skip(length)
    const value = length <= 8 ? littleEndian(this.bytes, from, length) : longLittleEndian(this.bytes, from, length)
    if (!Number.isFinite(value)) throw this.fail(`an integer of ${length} bytes`)
    this.stack[this.top++] = value
  }

  private text(length: number): void {
    this.stack[this.top++] = this.texts.read(this.skip(length), length)
  }

  private byteArray(length: number): void {
    const from = this.skip(length)
    this.countContainer()
    this.stack[this.top++] = this.bytes.subarray(from, from + length)
  }

  /** Where the next `length` bytes begin, which are read now. */
  private skip(length: number): number {
    this.checkLength(length)
    this.at += length
    return this.at - length
  }

  private mark(): void {
    if (this.marks.length === DEEPEST) throw this.fail(`containers more than ${DEEPEST} deep`)
    this.marks.push(this.floor)
    this.floor = this.top
  }

  /** The first of the values since the last mark, which is gone then. */
  private unmark(): number {
    const { floor } = this
    this.floor = this.marks.pop() ?? 0
    return floor
  }

  private open(container: unknown): void {
    if (this.top >= this.memoOf.length) this.memoOf = doubled(this.memoOf)
    this.memoOf[this.top] = -1
    this.stack[this.top++] = container
  }

  /** Adds the values from `from` on to the dictionary below them. */
  private setItems(from: number): void {
    const { stack, top } = this
    if (from <= this.floor) throw this.fail('items without a dictionary')
    if ((top - from) % 2 !== 0) throw this.fail('a key without a value')
    for (let key = from; key < top; key += 2) {
      if (typeof stack[key] !== 'string') throw this.fail('a dictionary with a key that is not text,')
    }
    const dict = stack[from - 1]
    if (dict === OPEN_DICT && top > from) {
      let made = this.dictionary(stack, from, top)
      if (made === undefined) {
        this.countContainer()
        made = plainDictionary(stack, from, top)
      }
      this.fill(from - 1, made, 'dictionary')
    } else if (isPlainDictionary(dict)) addItems(dict, stack, from, top)
    else if (dict !== OPEN_DICT) throw this.fail('items for something that is no dictionary,')
    this.top = from
    if (this.at >= this.nextProgress) {
      this.nextProgress = this.at + PROGRESS_BYTES
      this.onProgress?.(this.at)
    }
  }

  /** Adds the values from `from` on to the list below them. */
  private append(from: number): void {
    const { stack, top } = this
    if (from <= this.floor) throw this.fail('items without a list')
    const target = stack[from - 1]
    if (target === OPEN_LIST && top > from) {
      let made = this.list(stack, from, top)
      if (made === undefined) {
        this.countContainer()
        made = stack.slice(from, top)
      }
      this.fill(from - 1, made, 'list')
    } else if (Array.isArray(target) && target !== OPEN_LIST && target !== CLOSED_LIST) {
      for (let item = from; item < top; item++) target.push(stack[item])
    } else if (target !== OPEN_LIST) throw this.fail('items for something that is no list,')
    this.top = from
  }

  /** Puts a container in the place of an open one, on the stack and in the memo. */
  private fill(place: number, made: unknown, kind: 'dictionary' | 'list'): void {
    const { memo, memoOf, stack } = this
    const open = stack[place]
    stack[place] = made
    if (memoOf[place] < 0) return
    if (memo[memoOf[place]] !== open) throw this.fail(`a ${kind} that holds itself,`)
    memo[memoOf[place]] = made
  }

  private tuple(from: number): void {
    const { stack } = this
    if (from < this.floor) throw this.fail('a tuple without its items')
    this.countContainer()
    stack[from] = stack.slice(from, this.top)
    this.top = from + 1
  }

  private stop(): unknown {
    const { at, end } = this
    if (this.top !== 1 || this.marks.length > 0) throw this.fail('the pickle stops with values left over')
    if (at !== end) throw this.fail(`${end - at} bytes follow the end of the pickle`, at)
    return this.stack[0]
  }

  private countContainer(): void {
    if (++this.containers > this.mostContainers) throw this.tooMany('containers')
  }

  private checkLength(length: number): void {
    if (length > this.end - this.at) throw this.truncated()
  }

  private fail(fact: string, offset = this.start): FormatError {
    return new FormatError(`${fact} at byte ${offset}`)
  }

  private tooMany(what: string): FormatError {
    return this.fail(`more ${what} than a snapshot of this size has,`)
  }

  private truncated(): FormatError {
    return new FormatError(`the pickle is truncated: it should go on after byte ${this.end}`)
  }
}

function most(fileBytes: number, leastBytesEach: number): number {
  return Math.min(MOST_ENTRIES, 4096 + fileBytes / leastBytesEach) | 0
}

const plain: Build = () => undefined

function plainDictionary(items: readonly unknown[], from: number, to: number): object {
  // V8 keeps what Object.create(null) makes as a hash table, of several times the memory.
  const dict = Object.setPrototypeOf({}, null)
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
