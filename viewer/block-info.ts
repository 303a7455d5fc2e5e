// Blocks and holes as the page tells of them.

import type { Colouring } from '../src/recordings/picture/colouring.js'
import type { LiveBlocks } from '../src/recordings/picture/live-blocks.js'
import {
  addressOf,
  type Picture,
  type PictureFrame,
  type PolicyPicture,
  runsOf,
  UNIT_BYTES,
} from '../src/recordings/picture/picture.js'
import { placeAt } from '../src/recordings/picture/place.js'
import { callsOf, callText, linesOf } from '../src/recordings/picture/stack-text.js'
import { NEVER } from '../src/recordings/trace/trace.js'
import type { BlockInfo, BlockLine, PlaceInfo, StackLine } from './protocol.js'

/** Lines of a block's call stack. */
const MOST_LINES = 500

export function blockLine({ blocks }: Picture, colouring: Colouring, block: number): BlockLine {
  const [allocatedAt, freedAt] = [blocks.allocatedAt[block], blocks.freeRequestedAt[block]]
  return {
    block,
    bytes: blocks.bytes[block],
    allocatedAt,
    freedAt: freedAt === NEVER ? -1 : freedAt,
    group: colouring.labelOf(colouring.group[block]),
  }
}

export function blockInfo(picture: Picture, colouring: Colouring, block: number): BlockInfo {
  const { blocks, names, stacks, timeUs, policies } = picture
  const line = blockLine(picture, colouring, block)
  const { bytes, allocatedAt, freedAt } = line
  return {
    ...line,
    lifeUs: allocatedAt < 0 || freedAt < 0 ? null : timeUs[freedAt] - timeUs[allocatedAt],
    stream: names.stream[blocks.stream[block]],
    pool: names.pool[blocks.pool[block]],
    tag: names.tag[blocks.tag[block]],
    stack: stackLines(callsOf(linesOf(stacks, blocks.stack[block]), false)),
    addresses: policies.map(policy => ({ label: policy.label, text: addressText(policy, block, bytes) })),
  }
}

/** The thing at a height of a policy's address map. */
export function mapPlace(
  live: LiveBlocks,
  policy: PolicyPicture,
  colouring: Colouring,
  { event, bytes }: { readonly event: number; readonly bytes: number },
): PlaceInfo {
  const { picture } = live
  const { at, units, block, hole } = placeAt(live, policy, event, Math.floor(bytes / UNIT_BYTES))
  const ends = { from: at * UNIT_BYTES, to: (at + units) * UNIT_BYTES, isSmall: false }
  if (block >= 0) return { ...ends, block: blockInfo(picture, colouring, block), hole: null }
  if (hole === null) return { ...ends, block: null, hole: null }
  const [below, above] = [hole.below, hole.above].map(each => (each < 0 ? null : blockLine(picture, colouring, each)))
  return { ...ends, block: null, hole: { ...hole, address: addressOf(policy, at), below, above } }
}

function addressText(policy: PolicyPicture, block: number, bytes: number): string {
  if (policy.place === null) return 'addresses not kept'
  const runs = runsOf(policy, block, bytes)
  if (runs.length === 0) return policy.policy === 'recorded' ? 'not in the recording' : 'did not place it'
  const first = `0x${addressOf(policy, runs[0]).toString(16)}`
  const more = runs.length / 2 - 1
  return more === 0 ? first : `${first}, and ${more} more ${more === 1 ? 'place' : 'places'}`
}

/** The lines of a stack, the innermost first; of a very deep one the innermost lines and the number of the others. */
function stackLines(frames: readonly PictureFrame[]): StackLine[] {
  const lines = frames.slice(0, MOST_LINES).map(frame => ({ text: callText(frame), path: pathOf(frame) }))
  return frames.length > MOST_LINES ? [...lines, { text: `… ${frames.length - MOST_LINES} more`, path: null }] : lines
}

function pathOf({ file, line }: PictureFrame): string | null {
  return /^(?:\/|[a-z]:[\\/])/i.test(file) ? `${file}:${Math.max(1, line)}` : null
}
