// Policies of a replay that are models of PyTorch's allocator, and the settings in their names.

import type { NamedPolicy, Policy } from '../replay-result.js'
import { type PytorchSettings, parsePytorchSettings } from './model/pytorch-settings.js'

/** Before the settings in the name of a policy. */
const PREFIX = 'pytorch:'

/** The settings that a policy names after 'pytorch:'; null if it names none. Throws RangeError for bad ones. */
export function pytorchSettingsOf(policy: unknown): PytorchSettings | null {
  if (typeof policy !== 'string' || !policy.startsWith(PREFIX)) return null
  return parsePytorchSettings(policy.slice(PREFIX.length))
}

/** Whether a model of this folder replays the policy. */
export function isModelOfPytorch(policy: Policy): boolean {
  if (policy === 'pytorch' || policy === 'pytorch-expandable') return true
  const settings = pytorchSettingsOf(policy)
  return settings !== null && settings.backend !== 'cudaMallocAsync'
}

/** The policy of a pool that stands for a policy without a model: the driver's pool for `backend:cudaMallocAsync`. */
export function poolPolicyOf(policy: Policy): NamedPolicy {
  return pytorchSettingsOf(policy) === null ? (policy as NamedPolicy) : 'driver-pool'
}
