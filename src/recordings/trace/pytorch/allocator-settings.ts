// The dictionary `allocator_settings` of a memory snapshot, as torch/csrc/cuda/Module.cpp writes it: the text of the
// environment variable, and some of the settings that were in effect. A program may change settings after the variable
// was read, and a platform may lack one, so both are looked at.

import { MiB } from '../../../core/base/bytes.js'
import { isDictionary } from './data-checks.js'
import { understandPytorchSettings } from './model/pytorch-settings.js'
import { partsOf, QUOTES } from './model/setting-parts.js'
import { DIVISION_INTERVALS } from './model/setting-values.js'

/** The keys of the text: PYTORCH_ALLOC_CONF, or with the name of a platform as PYTORCH_HIP_ALLOC_CONF. */
const VARIABLE = /^(PYTORCH_(\w+_)?ALLOC_CONF|last_allocator_settings)$/
const WRITTEN_VARIABLE = 'PYTORCH_CUDA_ALLOC_CONF'
const PLACING = ['expandable_segments', 'max_split_size', 'garbage_collection_threshold', 'roundup_power2_divisions']
/** Behind a text whose expandable segments were not in effect. */
export const NOT_IN_EFFECT = 'expandable_segments:False'
const THREADS = 'pinned_num_register_threads'
/** Settings that are on or off, in PyTorch's order. */
const SWITCHES = ['release_lock_on_cudamalloc', 'pinned_use_cuda_host_register', 'graph_capture_record_stream_reuse']

/**
 * The settings as PYTORCH_CUDA_ALLOC_CONF would name them; '' for PyTorch's defaults, null if `value` contains none.
 * Behind the text stand those that it does not name or gives another value, since the last value of a setting counts.
 */
export function allocatorSettings(value: unknown): string | null {
  if (!isDictionary(value) || Object.keys(value).length === 0) return null
  const texts = Object.entries(value).flatMap(([key, text]) => (VARIABLE.test(key) ? [text] : []))
  const text = texts.find((each): each is string => typeof each === 'string' && each.trim() !== '')?.trim() ?? ''
  const { settings: said } = understandPytorchSettings(text)
  const named = new Set(partsOf(text.replaceAll(QUOTES, '')).map(({ name }) => name))
  const isSaid = (setting: string) => {
    if (!named.has(setting.slice(0, setting.indexOf(':')))) return false
    const fields = Object.entries(understandPytorchSettings(setting).settings)
    return (
      said.backend === 'cudaMallocAsync' ||
      fields.every(([key, field]) => isEqual(field, said[key as keyof typeof said]))
    )
  }
  const found = inEffect(value).filter(setting => !isSaid(setting))
  const isOff = said.expandableSegments === true && value['expandable_segments'] === false
  const bare = text.endsWith(',') ? text.slice(0, -1) : text
  return [...(bare === '' ? [] : [bare]), ...found, ...(isOff ? [NOT_IN_EFFECT] : [])].join(',')
}

function isEqual(a: unknown, b: unknown): boolean {
  return String(a) === String(b)
}

/** The settings of a dictionary that differ from PyTorch's defaults: first those that move blocks. */
function inEffect(value: Record<string, unknown>): string[] {
  const settings: string[] = []
  const others = Object.keys(value).filter(key => !VARIABLE.test(key) && !PLACING.includes(key))
  for (const key of [...PLACING, ...others]) {
    const entry = value[key]
    if (key === 'max_split_size') {
      // A size without a limit is the largest number of 64 bits, which may be read as -1.
      if (isAbove(entry, 0) && entry < 2 ** 63) settings.push(`max_split_size_mb:${Math.round(entry / MiB)}`)
    } else if (key === 'roundup_power2_divisions') settings.push(...divisionsOf(entry))
    else if (key === THREADS) settings.push(...(isAbove(entry, 1) ? [`${key}:${entry}`] : []))
    else if (entry === true) settings.push(`${key}:True`)
    else if (isAbove(entry, 0) && isSettingWithNumber(key, entry)) settings.push(`${key}:${entry}`)
  }
  return settings
}

/** Whether a key is the name of a setting. Other numbers may be defaults of a newer version. */
function isSettingWithNumber(key: string, number: number): boolean {
  return understandPytorchSettings(`${key}:${number}`).unknown.length === 0
}

/** A dictionary from sizes in MiB to counts, a list by rising size, or one count for all sizes. */
function divisionsOf(entry: unknown): string[] {
  if (isAbove(entry, 0)) return [`roundup_power2_divisions:${entry}`]
  const list = Array.isArray(entry) ? entry.map((count: unknown, i): [string, unknown] => [`${2 ** i}`, count]) : []
  const pairs = isDictionary(entry) ? Object.entries(entry) : list
  const counts = pairs.filter(([, count]) => isAbove(count, -1))
  if (!counts.some(([, count]) => isAbove(count, 0))) return []
  // With the zeros: the first entry of a list also holds for all smaller sizes.
  return [`roundup_power2_divisions:[${counts.map(([megabytes, count]) => `${megabytes}:${count}`).join(',')}]`]
}

function isAbove(value: unknown, least: number): value is number {
  return typeof value === 'number' && value > least
}

/** The dictionary of settings, with all keys that PyTorch writes. It is read as the same settings again. */
export function allocatorSettingsEntry(text: string | null): object {
  if (text === null) return {}
  const { settings, withoutEffect } = understandPytorchSettings(text)
  const values = new Map(withoutEffect.flatMap(partsOf).map(({ name, value }) => [name, value]))
  const divisions = settings.roundupPower2Divisions ?? new Array<number>(DIVISION_INTERVALS).fill(0)
  return {
    [WRITTEN_VARIABLE]: text,
    max_split_size: settings.maxSplitBytes ?? -1,
    garbage_collection_threshold: settings.garbageCollectionThreshold ?? 0,
    expandable_segments: settings.expandableSegments ?? false,
    [THREADS]: Number(values.get(THREADS) ?? 1),
    ...Object.fromEntries(SWITCHES.map(name => [name, values.get(name) === 'True'])),
    roundup_power2_divisions: Object.fromEntries(divisions.map((count, i) => [`${2 ** i}`, count])),
  }
}
