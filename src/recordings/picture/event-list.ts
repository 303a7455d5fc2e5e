// The events of blocks, as rows of a table.

import { Action } from '../trace/trace.js'
import { addressOf, type Picture, type PolicyPicture, runsOf } from './picture.js'

/** An allocation or a free. */
export interface EventRow {
  readonly event: number
  readonly block: number
  readonly isFree: boolean
  readonly bytes: number
  /** NaN if the policy did not place the block; of one in several places the first */
  readonly address: number
}

/**
 * The allocations and frees of blocks that `chosen` has, null for all, from event `from` to `to`. Those beyond `most`
 * are only counted.
 */
export function eventRows(
  { action, block, blocks }: Picture,
  policy: PolicyPicture | null,
  chosen: Uint8Array | null,
  { from, to, most }: { readonly from: number; readonly to: number; readonly most: number },
): { rows: EventRow[]; total: number } {
  const rows: EventRow[] = []
  let total = 0
  for (let event = Math.max(0, from); event <= Math.min(to, action.length - 1); event++) {
    const number = block[event]
    if (number < 0 || chosen?.[number] === 0 || ++total > most) continue
    const bytes = blocks.bytes[number]
    const runs = policy === null ? [] : runsOf(policy, number, bytes)
    const address = policy === null || runs.length === 0 ? Number.NaN : addressOf(policy, runs[0])
    rows.push({ event, block: number, isFree: action[event] !== Action.alloc, bytes, address })
  }
  return { rows, total }
}
