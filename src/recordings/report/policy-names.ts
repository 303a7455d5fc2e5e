// The names of policies in texts.

import { understandPytorchSettings } from '../trace/pytorch/model/pytorch-settings.js'
import type { NamedPolicy, Policy, ReplayReport } from '../trace/replay-result.js'

/** The allocator of a recording. */
type Recorded = Pick<ReplayReport['trace'], 'recorder' | 'settings'>

const NAMES: Readonly<Record<NamedPolicy, string>> = {
  recorded: 'PyTorch as recorded',
  pytorch: 'PyTorch, default',
  'pytorch-expandable': 'PyTorch, expandable',
  'cuda-mempool': 'cuda-mempool',
  'driver-malloc': 'cuMemAlloc each time',
  'driver-pool': "the driver's pool",
  'power-of-two': 'powers of two',
  waiting: 'cuda-mempool, waiting',
}
/** PyTorch's models keep the settings of a recording but for expandable segments. */
const AS_SET: Partial<Record<Policy, string>> = {
  pytorch: 'PyTorch, as set',
  'pytorch-expandable': 'PyTorch, as set, expandable',
}

/** The name of a policy in tables. */
export function nameOf(policy: Policy, { recorder, settings }: Recorded): string {
  if (policy === 'recorded' && recorder !== 'PyTorch') return 'as recorded'
  if (!policy.startsWith('pytorch:')) return (hasOthers(settings) && AS_SET[policy]) || NAMES[policy as NamedPolicy]
  const named = policy.slice('pytorch:'.length) || 'default'
  return `PyTorch, ${named}${named.includes('cudaMallocAsync') ? ' (estimated)' : ''}`
}

/** Whether the models take more of a recording's settings than expandable segments. */
export function hasOthers(settings: string | null): boolean {
  const { expandableSegments: _, backend: __, ...others } = understandPytorchSettings(settings ?? '').settings
  return Object.keys(others).length > 0
}
