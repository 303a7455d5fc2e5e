// The kinds of random programs.

import { SHARED_KINDS } from './shared-pools.js'

/** Pools of one thread, with captures and a second device; or a pool that threads share. */
export const KINDS = ['one-thread', ...SHARED_KINDS] as const

export type Kind = (typeof KINDS)[number]
