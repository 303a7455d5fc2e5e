import { WrongTypeError } from '../../../core/base/argument-errors.js'
import { Op } from './pickle-opcodes.js'

const PROTOCOL = 4
const FIRST_CAPACITY = 1 << 16
/** Python's own writer batches items in the same number, which keeps the reader's stack short. */
const BATCH = 1000
const TWO_32 = 2 ** 32
/** A Map holds at most 2^24 keys. */
const MOST_SHARED = 2 ** 24 - 1

/** Pickled as a Python tuple; an array becomes a list. */
export class PickleTuple {
  constructor(readonly items: readonly unknown[]) {}
}

/**
 * Pickles null, booleans, numbers, text, arrays (as lists), PickleTuples and plain objects (as dicts) by protocol 4.
 * Whole numbers below 2^53 become integers, others floats. Objects shared here are shared in the pickle, but
 * for those after the first `mostShared`. Throws TypeError for other values.
 */
export function writePickle(value: unknown, mostShared = MOST_SHARED): Buffer {
  const writer = new PickleWriter(mostShared)
  writer.save(value)
  return writer.finish()
}

class PickleWriter {
  private bytes = Buffer.allocUnsafe(FIRST_CAPACITY)
  private at = 0
  private readonly memo = new Map<unknown, number>()

  constructor(private readonly mostShared: number) {
    this.opcode(Op.PROTO, 1)
    this.bytes[this.at++] = PROTOCOL
  }

  finish(): Buffer {
    this.opcode(Op.STOP)
    return this.bytes.subarray(0, this.at)
  }

  save(value: unknown): void {
    if (value === null) this.opcode(Op.NONE)
    else if (typeof value === 'boolean') this.opcode(value ? Op.NEWTRUE : Op.NEWFALSE)
    else if (typeof value === 'number') this.saveNumber(value)
    else if (typeof value === 'string' || typeof value === 'object') this.saveShared(value)
    else throw new WrongTypeError(`a pickle cannot hold a ${typeof value}`)
  }

  private saveShared(value: string | object): void {
    const known = this.memo.get(value)
    if (known !== undefined) {
      this.opcode(known < 256 ? Op.BINGET : Op.LONG_BINGET, 4)
      this.at = known < 256 ? this.bytes.writeUInt8(known, this.at) : this.bytes.writeUInt32LE(known, this.at)
    } else if (typeof value === 'string') {
      this.saveText(value)
      this.memoize(value)
    } else if (value instanceof PickleTuple) {
      this.saveTuple(value)
    } else if (Array.isArray(value)) {
      this.opcode(Op.EMPTY_LIST)
      this.memoize(value)
      this.saveBatches(value, Op.APPENDS, item => this.save(item))
    } else {
      this.opcode(Op.EMPTY_DICT)
      this.memoize(value)
      this.saveBatches(Object.keys(value), Op.SETITEMS, key => {
        this.save(key)
        this.save((value as Record<string, unknown>)[key])
      })
    }
  }

  private saveTuple(tuple: PickleTuple): void {
    this.opcode(Op.MARK)
    for (const item of tuple.items) this.save(item)
    this.opcode(Op.TUPLE)
    this.memoize(tuple)
  }

  private saveBatches<T>(items: readonly T[], opcode: number, save: (item: T) => void): void {
    for (let from = 0; from < items.length; from += BATCH) {
      this.opcode(Op.MARK)
      for (let i = from; i < Math.min(from + BATCH, items.length); i++) save(items[i])
      this.opcode(opcode)
    }
  }

  private saveNumber(value: number): void {
    if (!Number.isSafeInteger(value) || Object.is(value, -0)) {
      this.opcode(Op.BINFLOAT, 8)
      this.at = this.bytes.writeDoubleBE(value, this.at)
    } else if (value >= 0 && value < 2 ** 8) {
      this.opcode(Op.BININT1, 1)
      this.bytes[this.at++] = value
    } else if (value >= 0 && value < 2 ** 16) {
      this.opcode(Op.BININT2, 2)
      this.at = this.bytes.writeUInt16LE(value, this.at)
    } else if (value === (value | 0)) {
      this.opcode(Op.BININT, 4)
      this.at = this.bytes.writeInt32LE(value, this.at)
    } else {
      this.saveLong(value)
    }
  }

  private saveLong(value: number): void {
    const high = Math.floor(value / TWO_32)
    const highBytes = high >= -(2 ** 15) && high < 2 ** 15 ? 2 : 3
    this.opcode(Op.LONG1, 8)
    this.bytes[this.at++] = 4 + highBytes
    this.at = this.bytes.writeUInt32LE(value - high * TWO_32, this.at)
    this.at = this.bytes.writeIntLE(high, this.at, highBytes)
  }

  private saveText(text: string): void {
    const length = Buffer.byteLength(text)
    this.opcode(length < 256 ? Op.SHORT_BINUNICODE : Op.BINUNICODE, 4 + length)
    this.at = length < 256 ? this.bytes.writeUInt8(length, this.at) : this.bytes.writeUInt32LE(length, this.at)
    this.at += this.bytes.write(text, this.at)
  }

  private memoize(value: unknown): void {
    if (this.memo.size === this.mostShared) return
    this.memo.set(value, this.memo.size)
    this.opcode(Op.MEMOIZE)
  }

  /** Writes `opcode`, and makes room for its operand. */
  private opcode(opcode: number, operandBytes = 0): void {
    if (this.at + 1 + operandBytes > this.bytes.length) {
      const larger = Buffer.allocUnsafe(2 * this.bytes.length + operandBytes)
      this.bytes.copy(larger, 0, 0, this.at)
      this.bytes = larger
    }
    this.bytes[this.at++] = opcode
  }
}
