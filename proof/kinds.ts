// The kinds of random programs.

import { SHARED_KINDS } from './shared-pools.js'

/**
 * Pools of one thread, with captures and a second device; the same with large blocks, many of them in views; the same
 * with sleep, wake and buffers that spill or grow; these with small blocks in memory of other streams, or with graphs
 * that share memory; or a pool that threads share.
 */
export const KINDS = ['one-thread', 'views', 'sleeping', 'slabs', 'groups', ...SHARED_KINDS] as const

export type Kind = (typeof KINDS)[number]
