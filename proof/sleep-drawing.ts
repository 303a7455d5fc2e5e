// The weights of the operations that sleep, wake, spill and wait for memory, and the refused calls of their programs.

import type { Refusals } from './drawing.js'

export const SLEEP_WEIGHTS = {
  sleep: 5,
  wake: 12,
  turn: 14,
  idle: 0.4,
  settle: 4,
  growable: 1,
  resize: 2,
  spillable: 9,
  borrow: 36,
  work: 10,
  'give back': 12,
  spill: 9,
  'free spillable': 3,
  'close spillables': 0.3,
  limit: 0.5,
  reserve: 1,
  'await room': 2,
  abort: 0.7,
  observe: 1,
  'stop observing': 2,
  'nap and wake': 7,
  'share a slab': 6,
  'return and free': 4,
} as const

export type SleepVerb = keyof typeof SLEEP_WEIGHTS

export const SLEEP_REFUSED: Refusals<SleepVerb | 'allocate' | 'free' | 'trim' | 'close'> = [
  ['*', ['sleep', 'wake', 'turn', 'settle']],
  ['*', ['borrow', 'spill', 'spillable', 'free spillable', 'give back', 'work']],
  ['*', ['growable', 'resize', 'limit', 'reserve', 'observe', 'trim', 'allocate', 'free']],
]
