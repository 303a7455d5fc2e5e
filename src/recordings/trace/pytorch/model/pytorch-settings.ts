// The settings of PyTorch's allocator, and their text in the environment variable PYTORCH_CUDA_ALLOC_CONF.

import { OutOfRangeError, WrongTypeError } from '../../../../core/base/argument-errors.js'
import { describe, MiB } from '../../../../core/base/bytes.js'

/** Settings of PyTorch's allocator that decide where blocks lie. One that is left out has PyTorch's default. */
export interface PytorchSettings {
  /** `backend`: PyTorch's own allocator ('native', the default) or the driver's stream-ordered pool */
  readonly backend?: 'native' | 'cudaMallocAsync'
  /** `expandable_segments`: whether segments grow page by page; default false */
  readonly expandableSegments?: boolean
  /** `max_split_size_mb` in bytes: blocks of at least this size are not split; at least 20 MiB, default no limit */
  readonly maxSplitBytes?: number
  /**
   * `max_non_split_rounding_mb` in bytes: a block that is not split is less than this larger than its request; at
   * least 20 MiB, default `largeSegmentBytes`
   */
  readonly maxNonSplitRoundingBytes?: number
  /**
   * `roundup_power2_divisions`: into how many steps each interval between powers of two is divided. 16 numbers, for
   * requests below 2 MiB, below 4 MiB, … and from 32 GiB on; 0 and 1 round to 512 bytes. Default all 0
   */
  readonly roundupPower2Divisions?: readonly number[]
  /**
   * `garbage_collection_threshold`: from this share of the limit on, idle segments are given back before a new one is
   * obtained; between 0 and 1. It has no effect without a limit. Default never
   */
  readonly garbageCollectionThreshold?: number
  /** `large_segment_size_mb` in bytes: the segments for requests from 1 to 10 MiB; above 10 MiB, default 20 MiB */
  readonly largeSegmentBytes?: number
}

type Reader = (value: string | readonly string[], name: string) => Partial<PytorchSettings>

const LEAST_UNSPLIT_MB = 20
const LARGEST_SHARED_MB = 10
/** How many sizes `roundup_power2_divisions` tells apart. */
export const DIVISION_INTERVALS = 16
/** Settings for which `backend:cudaMallocAsync` has no use. */
const NATIVE = [
  'expandable_segments',
  'max_split_size_mb',
  'max_non_split_rounding_mb',
  'roundup_power2_divisions',
  'garbage_collection_threshold',
  'large_segment_size_mb',
]

const READERS: Readonly<Record<string, Reader>> = {
  backend: (value, name) => {
    if (value === 'native' || value === 'cudaMallocAsync') return { backend: value }
    throw wrong(name, 'must be native or cudaMallocAsync', value)
  },
  expandable_segments: (value, name) => ({ expandableSegments: boolean(value, name) }),
  max_split_size_mb: (value, name) => ({ maxSplitBytes: megabytes(value, name, LEAST_UNSPLIT_MB) }),
  max_non_split_rounding_mb: (value, name) => ({ maxNonSplitRoundingBytes: megabytes(value, name, LEAST_UNSPLIT_MB) }),
  large_segment_size_mb: (value, name) => ({ largeSegmentBytes: megabytes(value, name, LARGEST_SHARED_MB + 1) }),
  garbage_collection_threshold: (value, name) => {
    const share = typeof value === 'string' && value !== '' ? Number(value) : NaN
    if (share > 0 && share < 1) return { garbageCollectionThreshold: share }
    throw wrong(name, 'must be between 0 and 1', value)
  },
  roundup_power2_divisions: (value, name) => ({ roundupPower2Divisions: divisions(value, name) }),
}

/** The program's own limit: every model takes it as a capacity. */
const LIMIT = 'per_process_memory_fraction'
/** Settings that PyTorch knows and that move no block of a GPU's memory. */
const WITHOUT_EFFECT = [
  'graph_capture_record_stream_reuse',
  'pinned_free_catch_all',
  'pinned_num_register_threads',
  'pinned_reserve_segment_size_mb',
  'pinned_use_background_threads',
  'pinned_use_cuda_host_register',
  'release_lock_on_cudamalloc',
  'throw_on_cudamalloc_oom',
]

/**
 * Reads settings as PYTORCH_CUDA_ALLOC_CONF has them, such as 'max_split_size_mb:128,expandable_segments:True'; ''
 * stands for the defaults. `=` may stand for the first `:` of a setting. Settings of pinned memory are passed over.
 * Throws RangeError for text that PyTorch refuses, and for settings that its `backend:cudaMallocAsync` ignores.
 */
export function parsePytorchSettings(text: string): PytorchSettings {
  if (typeof text !== 'string') throw new WrongTypeError(`PyTorch's settings must be text, not ${describe(text)}`)
  const names = new Set<string>()
  const settings = readParts(text, (name, read) => {
    names.add(name)
    if (name === LIMIT) {
      throw new OutOfRangeError(
        `${LIMIT} is a share of a device that no recording names; give a capacity in bytes instead`,
      )
    }
    return read()
  })
  const ignored = NATIVE.filter(name => names.has(name))
  if (settings.backend === 'cudaMallocAsync' && ignored.length > 0) {
    throw new OutOfRangeError(
      `backend:cudaMallocAsync ignores ${ignored.join(' and ')}; leave out the one or the other`,
    )
  }
  if (isTooSmallToSplit(settings)) throw new OutOfRangeError('max_split_size_mb must be at least large_segment_size_mb')
  return settings
}

/**
 * The same for the text of a recording, in which PyTorch of another version understood all. Each setting that is not
 * known here, or has an unknown form, is left out and returned in `unknown` as it was written. A recording's limit is
 * found by its failures, and its `backend:cudaMallocAsync` leaves the other settings without effect.
 */
export function understandPytorchSettings(text: string): { settings: PytorchSettings; unknown: readonly string[] } {
  const unknown: string[] = []
  const settings = readParts(text, (name, read, part) => {
    try {
      return name === LIMIT ? {} : read()
    } catch (error) {
      if (!(error instanceof RangeError)) throw error
      unknown.push(part)
      return {}
    }
  })
  if (settings.backend === 'cudaMallocAsync') return { settings: { backend: settings.backend }, unknown }
  if (!isTooSmallToSplit(settings)) return { settings, unknown }
  const { largeSegmentBytes, ...others } = settings
  return { settings: others, unknown: [...unknown, `large_segment_size_mb:${largeSegmentBytes! / MiB}`] }
}

/** The settings in a text. `take` decides about each: it calls `read`, which throws RangeError, or does without. */
function readParts(
  text: string,
  take: (name: string, read: () => Partial<PytorchSettings>, part: string) => Partial<PytorchSettings>,
): PytorchSettings {
  const bare = text.replaceAll(/\s/g, '')
  if (bare === '') return {}
  let settings: PytorchSettings = {}
  for (const part of partsOf(bare)) {
    const [name] = part.split(/[:=]/, 1)
    settings = { ...settings, ...take(name, () => readSetting(name, part.slice(name.length)), part) }
  }
  return settings
}

/** The text between commas; those of a list in brackets separate nothing. */
function partsOf(text: string): string[] {
  const parts: string[] = []
  let end = text.length
  let isInList = false
  for (let i = end - 1; i >= 0; i--) {
    if (text[i] === ']') isInList = true
    else if (text[i] === '[') isInList = false
    else if (text[i] === ',' && !isInList) {
      parts.push(text.slice(i + 1, end))
      end = i
    }
  }
  parts.push(text.slice(0, end))
  return parts.reverse()
}

/** `rest` is the text behind the name, with its colon. */
function readSetting(name: string, rest: string): Partial<PytorchSettings> {
  if (name === '' && rest === '') throw new OutOfRangeError("expected a setting after ','")
  if (rest === '') throw new OutOfRangeError(`${name}: expected ':', not the end`)
  if (WITHOUT_EFFECT.includes(name)) return {}
  if (!Object.hasOwn(READERS, name)) {
    throw new OutOfRangeError(`PyTorch has no setting '${name}'; there are ${Object.keys(READERS).join(', ')}`)
  }
  const value = rest.slice(1)
  if (!value.startsWith('[')) return READERS[name](value, name)
  if (!value.endsWith(']')) throw new OutOfRangeError(`${name}: expected a closing bracket ']'`)
  return READERS[name](value.slice(1, -1).split(','), name)
}

function isTooSmallToSplit({ maxSplitBytes, largeSegmentBytes }: PytorchSettings): boolean {
  return maxSplitBytes !== undefined && largeSegmentBytes !== undefined && maxSplitBytes < largeSegmentBytes
}

/** The settings as PYTORCH_CUDA_ALLOC_CONF has them; '' for the defaults. */
export function formatPytorchSettings(settings: PytorchSettings): string {
  const parts: string[] = []
  if (settings.backend === 'cudaMallocAsync') parts.push('backend:cudaMallocAsync')
  if (settings.expandableSegments) parts.push('expandable_segments:True')
  const sizes = [
    ['max_split_size_mb', settings.maxSplitBytes],
    ['max_non_split_rounding_mb', settings.maxNonSplitRoundingBytes],
    ['large_segment_size_mb', settings.largeSegmentBytes],
  ] as const
  for (const [name, bytes] of sizes) if (bytes !== undefined) parts.push(`${name}:${bytes / MiB}`)
  const counts = settings.roundupPower2Divisions
  if (counts?.some(count => count > 1)) {
    const list = counts.map((count, i) => `${2 ** i}:${count}`).join(',')
    parts.push(`roundup_power2_divisions:${counts.every(count => count === counts[0]) ? counts[0] : `[${list}]`}`)
  }
  const threshold = settings.garbageCollectionThreshold
  if (threshold !== undefined) parts.push(`garbage_collection_threshold:${threshold}`)
  return parts.join(',')
}

function boolean(value: string | readonly string[], name: string): boolean {
  if (value === 'True' || value === 'False') return value === 'True'
  throw wrong(name, 'must be True or False', value)
}

function megabytes(value: string | readonly string[], name: string, least: number): number {
  const count = wholeNumber(value)
  if (count >= least) return count * MiB
  throw wrong(name, `must be a whole number of at least ${least}`, value)
}

/** Each entry of a list names a size in MiB, or `>` for all above the last entry. The first counts below it, too. */
function divisions(value: string | readonly string[], name: string): number[] {
  if (typeof value === 'string') {
    if (isPowerOf2(wholeNumber(value))) return new Array(DIVISION_INTERVALS).fill(wholeNumber(value))
    throw wrong(name, 'must be a power of 2, or a list', value)
  }
  const counts: number[] = new Array(DIVISION_INTERVALS).fill(0)
  let last = -1
  for (const [index, entry] of value.entries()) {
    const [size, text] = entry.split(':')
    const count = wholeNumber(text ?? '')
    if (count !== 0 && !isPowerOf2(count)) throw wrong(name, 'must have powers of 2, or 0, after each colon', entry)
    if (size === '>') {
      counts.fill(count, last + 1)
      continue
    }
    if (!isPowerOf2(wholeNumber(size))) throw wrong(name, 'must have powers of 2, or >, before each colon', entry)
    last = Math.min(DIVISION_INTERVALS - 1, Math.log2(wholeNumber(size)))
    if (index === 0) counts.fill(count, 0, last)
    counts[last] = count
  }
  return counts
}

function isPowerOf2(count: number): boolean {
  return count > 0 && Number.isInteger(Math.log2(count))
}

function wholeNumber(value: string | readonly string[]): number {
  return typeof value === 'string' && /^\d{1,9}$/.test(value) ? Number(value) : NaN
}

function wrong(name: string, rule: string, value: string | readonly string[]): RangeError {
  return new OutOfRangeError(
    `${name} ${rule}, not ${typeof value === 'string' ? `'${value}'` : `[${value.join(',')}]`}`,
  )
}
