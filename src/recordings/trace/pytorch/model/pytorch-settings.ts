// The settings of PyTorch's allocator, and their text in the environment variable PYTORCH_CUDA_ALLOC_CONF.

import { OutOfRangeError, WrongTypeError } from '../../../../core/base/argument-errors.js'
import { describe, GiB, MiB } from '../../../../core/base/bytes.js'
import { isTaken, leavingOf, READERS } from './setting-names.js'
import { type Part, partsOf, QUOTES } from './setting-parts.js'
import { LARGE_SEGMENT_BYTES } from './setting-values.js'

/** Settings of PyTorch's allocator that decide where blocks lie. One that is left out has PyTorch's default. */
export interface PytorchSettings {
  /** `backend`: PyTorch's own allocator ('native', the default) or the driver's stream-ordered pool */
  readonly backend?: 'native' | 'cudaMallocAsync'
  /** `expandable_segments`: whether segments grow page by page; default false */
  readonly expandableSegments?: boolean
  /**
   * `expandable_segments_reserve` in bytes, without the form that is a share of the device: the addresses of one
   * expandable segment, in whole pages. A request that is larger fails. Default 9/8 of the device
   */
  readonly expandableReserveBytes?: number
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

/** The settings of a text, sorted by their use for a model. The lists have each setting as it was written. */
export interface UnderstoodSettings {
  /** those that the models take */
  readonly settings: PytorchSettings
  /** those that are not known, or have a value of another form */
  readonly unknown: readonly string[]
  /** those that PyTorch knows and no model takes, unless they have their default */
  readonly notReplayed: readonly string[]
  /** those that move no block of a GPU's memory */
  readonly withoutEffect: readonly string[]
}

/** Sizes of at least `largeSegmentBytes`, which PyTorch reads first. */
const SIZES = [
  ['max_split_size_mb', 'maxSplitBytes'],
  ['max_non_split_rounding_mb', 'maxNonSplitRoundingBytes'],
] as const

/**
 * Reads settings as PYTORCH_CUDA_ALLOC_CONF has them, such as 'max_split_size_mb:128,expandable_segments:True'; ''
 * stands for the defaults. `=` may stand for the first `:` of a setting, and of settings given twice the last one
 * counts. Settings that no model takes are passed over. Throws RangeError for text that PyTorch refuses, for a limit,
 * and for settings that `backend:cudaMallocAsync` ignores.
 */
export function parsePytorchSettings(text: string): PytorchSettings {
  if (typeof text !== 'string') throw new WrongTypeError(`PyTorch's settings must be text, not ${describe(text)}`)
  const names = new Set<string>()
  let settings: PytorchSettings = {}
  for (const { name, value, written } of partsOf(text)) {
    if (written === '') throw new OutOfRangeError("expected a setting after ','")
    if (value === null) throw new OutOfRangeError(`'${name}' is no setting with a value, like expandable_segments:True`)
    const leaving = leavingOf(name, value)
    if (leaving?.kind === 'limit' && !leaving.isDefault?.(value)) {
      throw new OutOfRangeError(
        `${name} is a share of a device that no recording names; give a capacity in bytes instead`,
      )
    }
    if (leaving !== undefined) continue
    names.add(name)
    settings = { ...settings, ...readSetting(name, value, settings) }
  }
  const ignored = Object.keys(READERS).filter(name => name !== 'backend' && names.has(name))
  if (settings.backend === 'cudaMallocAsync' && ignored.length > 0) {
    throw new OutOfRangeError(
      `backend:cudaMallocAsync ignores ${ignored.join(' and ')}; leave out the one or the other`,
    )
  }
  const [small] = tooSmall(settings)
  if (small === undefined) return settings
  if (settings.largeSegmentBytes !== undefined) {
    throw new OutOfRangeError(`${small.name} must be at least large_segment_size_mb`)
  }
  throw new OutOfRangeError(`${small.name} must be a whole number of at least 20, not '${small.bytes / MiB}'`)
}

function readSetting(name: string, value: string, before: PytorchSettings): Partial<PytorchSettings> {
  if (isTaken(name, value)) return READERS[name](value, name, before)
  throw new OutOfRangeError(`PyTorch has no setting '${name}'; there are ${Object.keys(READERS).join(', ')}`)
}

/**
 * The same for the text of a recording, in which PyTorch of another version understood all, or of a person's shell.
 * Nothing is refused: a setting that is not known leaves the others as they are. Quotes are passed over, and of a value
 * like 128MB the number counts, as in PyTorch. A recording's limit is found by its failures, and its
 * `backend:cudaMallocAsync` leaves the other settings without effect.
 */
export function understandPytorchSettings(text: string): UnderstoodSettings {
  const unknown: string[] = []
  const notReplayed: string[] = []
  const withoutEffect: string[] = []
  let settings: PytorchSettings = {}
  for (const part of partsOf(text.replaceAll(QUOTES, ''))) {
    const { name, value, written } = part
    const leaving = leavingOf(name, value)
    if (written === '') continue
    if (leaving === undefined || value === null) {
      const read = readLeniently(part, settings)
      if (read === null) unknown.push(written)
      else settings = { ...settings, ...read }
    } else if (leaving.kind === 'none') withoutEffect.push(written)
    else if (leaving.kind === 'left out' && !leaving.isDefault?.(value)) notReplayed.push(written)
  }
  if (settings.backend === 'cudaMallocAsync') settings = { backend: settings.backend }
  for (const { name, key, bytes } of tooSmall(settings)) {
    const { [key]: _, ...others } = settings
    settings = others
    unknown.push(`${name}:${bytes / MiB}`)
  }
  return { settings, unknown, notReplayed, withoutEffect }
}

/** What a setting depends on that replays leave out. */
export function lackedBy(written: string): string {
  const [{ name, value }] = partsOf(written)
  return leavingOf(name, value)?.lacks ?? ''
}

/** PyTorch takes the number before other letters, or its whole part. */
const NUMBER_WITH_UNIT = /^((\d+)(?:\.\d+)?)[A-Za-z]*$/

/** The field of a setting; null for an unknown name or form. */
function readLeniently({ name, value }: Part, before: PytorchSettings): Partial<PytorchSettings> | null {
  if (value === null || !isTaken(name, value)) return null
  for (const form of [value, ...(NUMBER_WITH_UNIT.exec(value)?.slice(1) ?? [])]) {
    try {
      return READERS[name](form, name, before)
    } catch (error) {
      if (!(error instanceof RangeError)) throw error
    }
  }
  return null
}

function tooSmall(settings: PytorchSettings) {
  const least = settings.largeSegmentBytes ?? LARGE_SEGMENT_BYTES
  return SIZES.flatMap(([name, key]) => {
    const bytes = settings[key]
    return bytes !== undefined && bytes < least ? [{ name, key, bytes }] : []
  })
}

/** The settings with an effect, as PYTORCH_CUDA_ALLOC_CONF has them; '' for the defaults. */
export function formatPytorchSettings(settings: PytorchSettings): string {
  const parts: string[] = []
  if (settings.backend === 'cudaMallocAsync') parts.push('backend:cudaMallocAsync')
  if (settings.expandableSegments) {
    parts.push('expandable_segments:True')
    const reserve = settings.expandableReserveBytes
    if (reserve !== undefined) parts.push(`expandable_segments_reserve:${reserve / GiB}G`)
  }
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
