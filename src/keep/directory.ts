// The table of a region's arrays. The writer sends it with the commit, and the keeper passes it on unread.

import { OutOfRangeError, WrongTypeError } from '../core/base/argument-errors.js'
import { describe } from '../core/base/bytes.js'
import { KeepError } from '../core/base/errors.js'
import { listed } from '../core/base/readable.js'

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

/** The arrays of a region by name. */
export class Directory {
  private readonly byName = new Map<string, KeptArray>()

  /** Throws TypeError or RangeError, in the name of `call`, for a bad or known name. */
  checkNew(call: string, name: string): void {
    if (typeof name !== 'string') throw new WrongTypeError(`${call}: name must be a text, not ${describe(name)}`)
    const bytes = Buffer.byteLength(name)
    if (bytes === 0 || bytes > MOST_NAME_BYTES) {
      throw new OutOfRangeError(`${call}: name must have 1 to ${MOST_NAME_BYTES} bytes, not ${bytes}`)
    }
    if (this.byName.has(name)) {
      throw new OutOfRangeError(`${call}: the region has an array ${describe(name)} already; choose another name`)
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
      const known = this.byName.size === 0 ? 'it has none' : `it has ${listed([...this.byName.keys()].map(describe))}`
      throw new OutOfRangeError(`array: the region has no array ${describe(name)}; ${known}`)
    }
    if (found.type === type) return found
    throw new WrongTypeError(`array: ${describe(name)} is of ${found.type}, not of ${type}; ask for ${found.type}`)
  }

  /** The bytes that the keeper passes on. */
  encoded(): Uint8Array {
    return Buffer.from(JSON.stringify({ arrays: this.arrays }))
  }

  /** Throws KeepError 'protocol' for anything but the table of a region of `byteLength`. */
  static decoded(bytes: Uint8Array, byteLength: number, region: string): Directory {
    const directory = new Directory()
    for (const array of arraysIn(bytes)) {
      if (!isArray(array, byteLength)) {
        throw new KeepError(`the arrays of region ${region} are of another version; have it filled anew`, 'protocol')
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
  const { name, type, byteOffset, length } = (value ?? {}) as Partial<KeptArray>
  return (
    typeof name === 'string' &&
    typeof type === 'string' &&
    Number.isSafeInteger(byteOffset) &&
    Number.isSafeInteger(length) &&
    byteOffset! >= 0 &&
    length! >= 0 &&
    byteOffset! + length! <= byteLength
  )
}
