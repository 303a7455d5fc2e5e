// Values that no call takes, and the check of the errors that refuse them.

import assert from 'node:assert/strict'
import { AssertionError } from '../src/core/base/assert.js'
import { describe } from '../src/core/base/bytes.js'

/** The program's own error, which reaches the program as it is. */
export const OWN_ERROR = new Error('of the program')

/** Throws the program's own error. */
export const throwOwn = (): never => {
  throw OWN_ERROR
}

/** Says that it has more bytes than it has. */
class Lying extends Float32Array {
  override get byteLength(): number {
    return 1 << 20
  }
}

/** The traps of a proxy that can hardly be looked at. */
export const ALL_TRAPS: ProxyHandler<object> = {
  get: throwOwn,
  has: throwOwn,
  ownKeys: throwOwn,
  getPrototypeOf: throwOwn,
}

/** Values that no call takes, or hardly any. */
export const HOSTILE: readonly unknown[] = [
  ...[undefined, null, true, Number.NaN, -1, -0, 0.5, Infinity, -Infinity, 2 ** 31, 2 ** 32, 2 ** 53, 1e300, 5n, -1n],
  ...['', 'x', '1MiB', '-1', '1e9GiB', '50%', 'readWrite', 'none', 'host', Symbol('s'), throwOwn, () => {}, Map],
  ...[
    {},
    [],
    [1],
    { toString: 1 },
    { bytes: 5 },
    { signal: 5 },
    { signal: { throwIfAborted() {} } },
    Object.create(null),
  ],
  ...[new Date(0), /x/, new Map(), new Proxy({}, {}), new Proxy({}, ALL_TRAPS), new Proxy(throwOwn, {}), new Lying(1)],
  ...[
    new Proxy(new Float32Array(1), {}),
    { [Symbol.iterator]: throwOwn },
    {
      get bytes() {
        return throwOwn()
      },
    },
  ],
  ...[
    {
      get signal() {
        return throwOwn()
      },
    },
    {
      get stream() {
        return throwOwn()
      },
    },
    {
      get context() {
        return throwOwn()
      },
    },
  ],
]

const OF_V8 =
  /^Cannot |is not (a function|iterable|an object|defined)|^Invalid (array|typed)|^Method |Maximum call stack|incompatible receiver|reading '|read only|circular/

/** Any value as text for the log. */
export function shown(value: unknown): string {
  try {
    if (value instanceof Error) return `${value.name}: ${value.message}`
    return typeof value === 'object' && value !== null ? value.constructor.name : describe(value)
  } catch {
    return 'what cannot be shown'
  }
}

/** Throws unless the error is the program's own, or a typed error in words of this package. */
export function assertTyped(error: unknown, reasons: ReadonlySet<unknown>): void {
  if (error === OWN_ERROR || reasons.has(error) || (error instanceof Error && error.name === 'AbortError')) return
  assert.ok(error instanceof Error, 'an error is thrown')
  const isTyped = error instanceof TypeError || error instanceof RangeError || 'code' in error
  const isOurs = isTyped && !(error instanceof AssertionError || error instanceof assert.AssertionError)
  if (!isOurs || OF_V8.test(error.message)) throw new Error(`wrong error: ${shown(error)}`, { cause: error })
}
