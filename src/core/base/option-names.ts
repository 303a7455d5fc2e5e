// Checks of options that many functions share.

import { WrongTypeError } from './argument-errors.js'
import { describe } from './bytes.js'
import { printable } from './shown-text.js'

/** Throws TypeError in the name of `call` unless `options` is an object with options among `names`. */
export function checkOptionNames(call: string, options: object, names: readonly string[]): void {
  if (!isPlain(options)) {
    throw new WrongTypeError(`${call}: options must be an object such as { ${names[0]} }, not ${describe(options)}`)
  }
  for (const name of Object.keys(options)) {
    if (names.includes(name)) continue
    const meant = meantBy(call, name, names)
    throw new WrongTypeError(`${call}: unknown option '${name}'; the options are ${names.join(', ')}${meant}`)
  }
}

/** Throws TypeError unless `value` is true or false; `what` names the call and the argument. */
export function checkFlag(what: string, value: unknown): void {
  if (typeof value !== 'boolean') throw new WrongTypeError(`${what} must be true or false, not ${describe(value)}`)
}

/** Whether a value is an object as a program writes it: instances of classes have fields that are no options. */
export function isPlain(value: unknown): value is object {
  if (typeof value !== 'object' || value === null) return false
  const prototype = Object.getPrototypeOf(value)
  return prototype === null || Object.getPrototypeOf(prototype) === null // of whichever realm
}

/** Options of pools that threads share: `shared` made such a pool until 0.2. */
const OF_SHARED_POOLS = ['shared', 'readyBytes']

/** Other words for an option, which are not like its name here. */
const OTHER_WORDS: ReadonlyMap<string, string> = new Map([
  ['timeout', 'signal'],
  ['timeoutMs', 'signal'],
  ['deadline', 'signal'],
  ['concurrency', 'count'],
  ['blocks', 'grid'],
  ['threads', 'block'],
])

/** The end of the message: what the program may have meant. */
function meantBy(call: string, name: string, names: readonly string[]): string {
  const shared = call.replace(/^create(?=\w+Pool$|Pool$)/, 'createShared')
  if (shared !== call && OF_SHARED_POOLS.includes(name)) return `; call ${shared} for that`
  const other = OTHER_WORDS.get(name)
  if (other !== undefined && names.includes(other)) {
    return other === 'signal' ? '; a deadline is signal: AbortSignal.timeout(ms)' : `; did you mean ${other}?`
  }
  if (plain(name) === 'deviceid') return '; a pool is of the device that makes it, openDevice(number)'
  return didYouMean(name, names)
}

/** The end of a message: the name that is like a wrong one, if there is one. */
export function didYouMean(name: string, names: readonly string[]): string {
  const near = nearest(name, names)
  return near === undefined ? '' : `; did you mean ${printable(near)}?`
}

/** A name as other libraries and languages write it, such as max_pool_size, in the words of this one. */
function plain(name: string): string {
  const letters = name.toLowerCase().replace(/[_-]/g, '')
  const ours = letters
    .replace(/^maximum/, 'max')
    .replace(/^minimum/, 'min')
    .replace(/^initialpool/, 'initial')
    .replace(/size$/, 'bytes')
  return /^(limit|max)(bytes)?$/.test(ours) ? 'maxpoolbytes' : ours
}

/** The name among `names` that is the same word, begins as `name` does, or differs from it in at most two letters. */
function nearest(name: string, names: readonly string[]): string | undefined {
  const wrong = name.toLowerCase()
  const alike = (other: string) => {
    const right = other.toLowerCase()
    const isStart = wrong.length >= 4 && (right.startsWith(wrong.slice(0, 4)) || wrong.startsWith(right))
    return isStart || (wrong.length > 2 && edits(wrong, right) <= 2)
  }
  return names.find(other => other.toLowerCase() === plain(name)) ?? names.find(alike)
}

/** How many letters must be changed, added or removed to get from one word to the other. */
function edits(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, i) => i)
  for (let i = 1; i <= from.length; i++) {
    const next = [i]
    for (let k = 1; k <= to.length; k++) {
      next.push(Math.min(row[k] + 1, next[k - 1] + 1, row[k - 1] + (from[i - 1] === to[k - 1] ? 0 : 1)))
    }
    row = next
  }
  return row[to.length]
}

/** The options, with the defaults of those that are left out. */
export function withDefaults<O extends object>(
  options: O,
  defaults: { readonly [Name in keyof Required<O>]: O[Name] },
): { readonly [Name in keyof O]-?: NonNullable<O[Name]> } {
  const given = Object.entries(options).filter(([, value]) => value !== undefined)
  return { ...defaults, ...Object.fromEntries(given) } as { readonly [Name in keyof O]-?: NonNullable<O[Name]> }
}
