// The weights of the operations on graph groups, and the refused calls of their programs.

import type { Refusals } from './drawing.js'

export const GROUP_WEIGHTS = {
  'make group': 2,
  output: 10,
  'capture in a group': 12,
  'reserve group': 1,
  'trim group': 4,
  'close group': 2,
} as const

export type GroupVerb = keyof typeof GROUP_WEIGHTS

export const GROUP_REFUSED: Refusals<GroupVerb | 'launch' | 'use' | 'allocate' | 'trim'> = [
  ['cuMemAddressReserve', ['make group', 'output']],
  ['cuMemCreate', ['output', 'allocate', 'reserve group']],
  ['cuMemMap', ['output', 'allocate', 'reserve group']],
  ['cuMemUnmap', ['trim group', 'close group', 'trim']],
  ['cuStreamWaitEvent', ['launch', 'use']],
  ['cuStreamWaitEvent', ['launch']],
  ['cuEventRecord', ['launch', 'use']],
  ['cuGraphLaunch', ['launch']],
  ['*', ['launch', 'use', 'output', 'trim group', 'close group']],
]
