// The purpose of the memory at a moment, as text: parameters, gradients, optimizer state, activations and the rest.

import { formatBytes } from '../../../core/base/bytes.js'
import type { CategoriesAt, CategoryShare } from '../../trace/analysis/categories.js'
import type { TuneRecording } from '../../trace/tune/tune-report.js'
import { formatShare } from '../number-format.js'
import { sentences } from '../trace-lines.js'

/** A line has these words behind the name of its category. */
const MEANINGS: Partial<Record<CategoryShare['category'], string>> = {
  activations: 'kept from forward for backward',
  temporaries: 'freed within the same pass',
  other: 'work space of libraries, or kept by the program',
}

/** A line for each category, and the most that checkpointing could save; empty if they are unknown. */
export function categoriesText(categories: CategoriesAt | null, isFailure: boolean, width: number): string[] {
  if (categories === null) return []
  const { shares, recorded, isCheckpointed } = categories
  const all = shares.reduce((sum, { bytes }) => sum + bytes, 0)
  const by = recorded ? 'as PyTorch recorded it' : 'inferred from phases and lifetimes'
  const sizes = shares.map(({ bytes }) => formatBytes(bytes))
  const parts = shares.map(({ bytes }) => formatShare(bytes / all))
  const [columns, places] = [sizes, parts].map(texts => Math.max(...texts.map(text => text.length)))
  const lines = shares.map(({ category, bytes, mostBytes }, i) => {
    const meaning =
      bytes === 0 && mostBytes > 0 ? `${formatBytes(mostBytes)} at most, at other times` : MEANINGS[category]
    const what = meaning === undefined ? category : `${category}: ${meaning}`
    return `  ${sizes[i].padStart(columns)}  ${parts[i].padStart(places)}  ${what}`
  })
  const activations = shares.find(({ category }) => category === 'activations')
  const what = isFailure ? 'What the memory at the failed request was for' : 'What it was for'
  const text = [sentences([`${what}, ${by}:`], width), ...lines]
  text.push(...withoutStackText(shares).map(line => sentences([line], width)))
  if (activations !== undefined && activations.bytes > 0) {
    text.push(sentences([checkpointingText({ bytes: activations.bytes, isCheckpointed })], width))
  }
  return [text.join('\n')]
}

/** PyTorch's backward pass runs no Python, so that stacks of Python name no line there. */
function withoutStackText(shares: readonly CategoryShare[]): string[] {
  const parts = shares
    .filter(({ withoutStackBytes }) => withoutStackBytes > 0)
    .map(({ category, withoutStackBytes }) => `${formatBytes(withoutStackBytes)} ${category}`)
  return parts.length === 0
    ? []
    : [
        `Without a call stack, as in backward passes: ${parts.join(', ')}. Recorded with stacks='all', they have an operator.`,
      ]
}

/** The most that checkpointing could save. */
export function checkpointingText({ bytes, isCheckpointed }: NonNullable<TuneRecording['activations']>): string {
  const most = formatBytes(bytes)
  return isCheckpointed
    ? `Parts of the run are checkpointed; more of it could save ${most} at most: the activations.`
    : `Checkpointing (torch.utils.checkpoint) could save ${most} at most: the activations.`
}
