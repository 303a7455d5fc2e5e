// Checks that JSON has the form that it should have. Each check returns the value with its type, or throws. Fields that
// a shape does not name are left out, so a later version can add some.

import { KeepError } from '../base/errors.js'

/** Returns a value of the right form; `what` names it in the error. */
export type Shape<T> = (value: unknown, what: string) => T

/** The values that a shape lets through. */
export type Shaped<S> = S extends Shape<infer T> ? T : never

function refuse(what: string, expected: string): never {
  throw new KeepError(`${what} must be ${expected}; use the same cuda-mempool on both sides`, 'protocol')
}

export function textOf(leastBytes: number, mostBytes: number): Shape<string> {
  return (value, what) => {
    const bytes = typeof value === 'string' ? Buffer.byteLength(value) : -1
    return bytes >= leastBytes && bytes <= mostBytes
      ? (value as string)
      : refuse(what, `a text of ${leastBytes} to ${mostBytes} bytes`)
  }
}

export function wholeFrom(least: number, most = Number.MAX_SAFE_INTEGER): Shape<number> {
  return (value, what) =>
    Number.isSafeInteger(value) && (value as number) >= least && (value as number) <= most
      ? (value as number)
      : refuse(what, `a whole number from ${least} to ${most}`)
}

export const flag: Shape<boolean> = (value, what) =>
  typeof value === 'boolean' ? value : refuse(what, 'true or false')

export function oneOf<T extends string>(...values: readonly T[]): Shape<T> {
  return (value, what) => values.find(each => each === value) ?? refuse(what, `one of ${values.join(', ')}`)
}

export function maybe<T>(shape: Shape<T>): Shape<T | undefined> {
  return (value, what) => (value === undefined ? undefined : shape(value, what))
}

export function listOf<T>(shape: Shape<T>, most: number): Shape<readonly T[]> {
  return (value, what) =>
    Array.isArray(value) && value.length <= most
      ? value.map((each, index) => shape(each, `${what}[${index}]`))
      : refuse(what, `a list of at most ${most}`)
}

/** An object whose values are texts; as JSON it has at most `mostBytes`. */
export function textsOf(mostBytes: number): Shape<Readonly<Record<string, string>>> {
  return (value, what) => {
    const fits =
      isObject(value) &&
      Object.values(value).every(each => typeof each === 'string') &&
      Buffer.byteLength(JSON.stringify(value)) <= mostBytes
    return fits
      ? (value as Record<string, string>)
      : refuse(what, `an object of texts, at most ${mostBytes} bytes as JSON`)
  }
}

type Fields = Readonly<Record<string, Shape<unknown>>>

/** An object with these fields. */
export function fields<F extends Fields>(shapes: F): Shape<{ readonly [K in keyof F]: Shaped<F[K]> }> {
  return (value, what) => {
    if (!isObject(value)) refuse(what, 'an object')
    const entries = Object.entries(shapes).map(([name, shape]) => [name, shape(own(value, name), `${what}.${name}`)])
    return Object.fromEntries(entries)
  }
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function own(value: object, name: string): unknown {
  return Object.hasOwn(value, name) ? (value as Record<string, unknown>)[name] : undefined
}
