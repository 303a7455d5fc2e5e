import { MiB } from '../../base/bytes.js'
import { isDictionary } from './data-checks.js'

const VARIABLES = ['PYTORCH_ALLOC_CONF', 'PYTORCH_CUDA_ALLOC_CONF']

/**
 * The settings of PyTorch's allocator as PYTORCH_CUDA_ALLOC_CONF would name them; '' for its defaults, null if
 * `value` contains none. A program may change settings after the variable was read, so both are looked at.
 */
export function allocatorSettings(value: unknown): string | null {
  if (!isDictionary(value) || Object.keys(value).length === 0) return null
  const texts = VARIABLES.map(name => value[name]).filter(text => typeof text === 'string')
  const text = texts.find(each => each.trim() !== '')?.trim() ?? ''
  const found = changedSettings(value).filter(setting => !text.includes(setting.slice(0, setting.indexOf(':'))))
  return [...(text === '' ? [] : [text]), ...found].join(',')
}

function changedSettings(value: Record<string, unknown>): string[] {
  const settings: string[] = []
  if (value['expandable_segments'] === true) settings.push('expandable_segments:True')
  const split = value['max_split_size']
  if (isAbove(split, 0)) settings.push(`max_split_size_mb:${Math.round(split / MiB)}`)
  const threshold = value['garbage_collection_threshold']
  if (isAbove(threshold, 0)) settings.push(`garbage_collection_threshold:${threshold}`)
  const divisions = value['roundup_power2_divisions']
  const counts = isDictionary(divisions) ? Object.entries(divisions).filter(([, count]) => isAbove(count, -1)) : []
  if (counts.some(([, count]) => isAbove(count, 0))) {
    // With the zeros: the first entry of a list also holds for all smaller sizes.
    const list = counts.map(([megabytes, count]) => `${megabytes}:${count}`)
    settings.push(`roundup_power2_divisions:[${list.join(',')}]`)
  }
  return settings
}

function isAbove(value: unknown, least: number): value is number {
  return typeof value === 'number' && value > least
}
