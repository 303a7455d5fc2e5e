// The options of `cuda-mempool keep`. A right command line is recognised without commander, which refuses wrong ones.

import { parseArgs } from 'node:util'
import { OutOfRangeError } from '../../core/base/argument-errors.js'
import { parseBytes } from '../../core/base/bytes.js'

/** The options by name; those without a value are flags. */
export const KEEPER_OPTIONS = {
  socket: { value: 'path', about: "where to listen; default in the folder of this user's sockets" },
  'max-bytes': { value: 'size', about: 'keep at most this of each device, like 64GiB; default 90 % of its memory' },
  'max-regions': { value: 'number', about: 'keep at most this many regions; default 10000' },
  'max-descriptors': {
    value: 'number',
    about: 'keep at most this many pieces of regions; default 10000, or as ulimit -n allows',
  },
  replace: { value: null, about: 'take over from the keeper that listens there; its clients notice nothing' },
} as const satisfies Record<string, { readonly value: string | null; readonly about: string }>

/** The options of a keeper that is to run. */
export interface RunOptions {
  readonly socket: string | null
  readonly maxBytes: number | null
  readonly maxRegions: number
  /** null: the usual number, or fewer if the system allows no more */
  readonly maxDescriptors: number | null
  readonly replace: boolean
  /** whether it prints errors only */
  readonly quiet: boolean
}

const USUAL_REGIONS = 10_000
const MOST_COUNT = 1_000_000

/** The options of words that run a keeper; null for other commands, and for wrong options. */
export function keeperOptionsOf(words: readonly string[]): RunOptions | null {
  if (words[0] !== 'keep') return null
  const options = Object.entries(KEEPER_OPTIONS).map(([name, { value }]) => [
    name,
    { type: value === null ? 'boolean' : 'string' },
  ])
  try {
    const { values } = parseArgs({ args: words.slice(1), options: Object.fromEntries(options) })
    const names = Object.entries(values).map(([name, value]) => [camel(name), value])
    return keeperOptions(Object.fromEntries(names))
  } catch {
    return null
  }
}

/** Reads the options, by their names in camel case. Throws RangeError for a wrong value. */
export function keeperOptions(given: Readonly<Record<string, string | boolean | undefined>>): RunOptions {
  const text = (name: string) => (typeof given[name] === 'string' ? given[name] : null)
  const size = text('maxBytes')
  if (text('socket') === '') throw new OutOfRangeError('--socket must name a file')
  return {
    socket: text('socket'),
    maxBytes: size === null ? null : bytesOf('--max-bytes', size),
    maxRegions: countOf('--max-regions', text('maxRegions')) ?? USUAL_REGIONS,
    maxDescriptors: countOf('--max-descriptors', text('maxDescriptors')),
    replace: given['replace'] === true,
    quiet: given['quiet'] === true,
  }
}

function bytesOf(option: string, text: string): number {
  let bytes: number
  try {
    bytes = parseBytes(text)
  } catch (error) {
    throw new OutOfRangeError(`${option}: ${(error as Error).message}`)
  }
  if (bytes >= 1) return bytes
  throw new OutOfRangeError(`${option} must be at least 1 byte, not '${text}'`)
}

function camel(name: string): string {
  return name.replace(/-(\w)/g, (_, letter: string) => letter.toUpperCase())
}

function countOf(option: string, text: string | null): number | null {
  if (text === null) return null
  const count = Number(text)
  if (Number.isInteger(count) && count >= 1 && count <= MOST_COUNT) return count
  throw new OutOfRangeError(`${option} must be a whole number from 1 to ${MOST_COUNT}, not '${text}'`)
}
