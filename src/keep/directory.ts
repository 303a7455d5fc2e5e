// The table of a region's arrays. The writer sends it with the commit, and the keeper passes it on unread.

import { OutOfRangeError, WrongTypeError } from '../core/base/argument-errors.js'
import { describe } from '../core/base/bytes.js'
import { KeepError } from '../core/base/errors.js'
import { listed } from '../core/base/readable.js'
import { printable, shownName } from '../core/base/shown-text.js'
import { checkText } from './options.js'

/** An array of a region. */
export interface KeptArray {
  /** as given to `put` or `place` */
  readonly name: string
  /** the typed array's name, such as 'Float32Array' */
  readonly type: string
  /** bytes from the start of the region */
  readonly byteOffset: number
  /** in elements */
  readonly length: number
}

const MOST_NAME_BYTES = 1024
/** Bytes of an element by type. A reader on an older Node may lack a type that the writer had. */
const ELEMENT_BYTES: ReadonlyMap<unknown, number> = new Map([
  ['Int8Array', 1],
  ['Uint8Array', 1],
  ['Uint8ClampedArray', 1],
  ['Int16Array', 2],
  ['Uint16Array', 2],
  ['Float16Array', 2],
  ['Int32Array', 4],
  ['Uint32Array', 4],
  ['Float32Array', 4],
  ['Float64Array', 8],
  ['BigInt64Array', 8],
  ['BigUint64Array', 8],
])

/** The arrays of a region by name. */
export class Directory {
  private readonly byName = new Map<string, KeptArray>()

  /** Throws TypeError or RangeError, in the name of `call`, for a bad or known name. */
  checkNew(call: string, name: string): void {
    checkText(`${call}: name`, name, 1, MOST_NAME_BYTES)
    if (this.byName.has(name)) {
      throw new OutOfRangeError(`${call}: the region has an array ${shownName(name)} already; choose another name`)
    }
  }

  add(array: KeptArray): void {
    this.byName.set(array.name, array)
  }

  get arrays(): KeptArray[] {
    return [...this.byName.values()]
  }

  /** Throws RangeError for an unknown name, and TypeError for another type, in the name of `array`. */
  find(name: string, type: string): KeptArray {
    const found = this.byName.get(name)
    if (found === undefined) {
      const known = this.byName.size === 0 ? 'it has none' : `it has ${listed([...this.byName.keys()].map(shownName))}`
      throw new OutOfRangeError(`array: the region has no array ${printable(describe(name))}; ${known}`)
    }
    if (found.type === type) return found
    throw new WrongTypeError(`array: ${shownName(name)} is of ${found.type}, not of ${type}; ask for ${found.type}`)
  }

  /** The bytes that the keeper passes on. */
  encoded(): Uint8Array {
    return Buffer.from(JSON.stringify({ arrays: this.arrays }))
  }

  /** Throws KeepError 'protocol' for anything but the table of a region of `byteLength`. Without bytes it has none. */
  static decoded(bytes: Uint8Array, byteLength: number, region: string): Directory {
    const directory = new Directory()
    for (const array of bytes.length === 0 ? [] : arraysIn(bytes)) {
      if (!isArray(array, byteLength) || directory.byName.has(array.name)) {
        const facts = `the arrays of region ${shownName(region)} are in no form that this version knows`
        throw new KeepError(`${facts}; drop it, and have it filled anew`, 'protocol')
      }
      directory.add(array)
    }
    return directory
  }
}

function arraysIn(bytes: Uint8Array): unknown[] {
  try {
    const { arrays } = JSON.parse(Buffer.from(bytes).toString()) ?? {}
    return Array.isArray(arrays) ? arrays : [null]
  } catch (error) {
    if (error instanceof SyntaxError) return [null]
    throw error
  }
}

function isArray(value: unknown, byteLength: number): value is KeptArray {
  const { name, type, byteOffset, length } = (value ?? {}) as KeptArray
  const bytes = ELEMENT_BYTES.get(type)
  return (
    typeof name === 'string' &&
    name !== '' &&
    Buffer.byteLength(name) <= MOST_NAME_BYTES &&
    bytes !== undefined &&
    Number.isSafeInteger(byteOffset) &&
    Number.isSafeInteger(length) &&
    byteOffset >= 0 &&
    byteOffset % bytes === 0 &&
    length > 0 &&
    byteOffset + length * bytes <= byteLength
  )
}
