// The places in a program that hold memory at one event.

import { CallSites } from '../frames/call-sites.js'
import type { Trace } from '../trace.js'

/** The blocks held by a line of the program. */
export interface Holder {
  /** requested bytes of its blocks */
  readonly bytes: number
  /** how many blocks there are */
  readonly blocks: number
  /**
   * the innermost line outside of PyTorch, as `file:line function`; without one what says most of its blocks, such as
   * `backward of mm`; null for blocks without a call stack
   */
  readonly site: string | null
  /** the line of PyTorch, or of generated code, that the site called for over half of these bytes; null for none */
  readonly through: string | null
  /** whether the blocks are from before the recording */
  readonly before: boolean
}

/** Blocks with the same call stack, all from before the recording or none. */
interface Held {
  bytes: number
  blocks: number
  readonly stack: number
  readonly isInitial: boolean
}

/** The holders of the blocks `live`, most bytes first. */
export function holdersOf(trace: Trace, live: readonly number[]): Holder[] {
  const sites = CallSites.of(trace.stacks)
  const groups = new Map<string, { holder: Holder; throughBytes: Map<string | null, number> }>()
  for (const { bytes, blocks, stack, isInitial } of heldByStack(trace, live)) {
    const { site, through } = sites.siteOf(stack)
    const before = site === null && isInitial
    const key = site ?? (before ? ' before' : ' unknown')
    const group = groups.get(key) ?? { holder: { bytes: 0, blocks: 0, site, through, before }, throughBytes: new Map() }
    const { holder, throughBytes } = group
    throughBytes.set(through, (throughBytes.get(through) ?? 0) + bytes)
    groups.set(key, {
      holder: { ...holder, bytes: holder.bytes + bytes, blocks: holder.blocks + blocks },
      throughBytes,
    })
  }
  return [...groups.values()]
    .map(({ holder, throughBytes }) => ({ ...holder, through: mainCall(throughBytes, holder.bytes) }))
    .sort((a, b) => b.bytes - a.bytes)
}

/** A recording may have many blocks and many failed requests, but it has few call stacks. */
function heldByStack({ blocks }: Trace, live: readonly number[]): Iterable<Held> {
  const held = new Map<number, Held>()
  for (const number of live) {
    const stack = blocks.stack[number]
    const isInitial = number < blocks.initial
    const key = stack * 2 + (isInitial ? 1 : 0)
    let group = held.get(key)
    if (group === undefined) {
      group = { bytes: 0, blocks: 0, stack, isInitial }
      held.set(key, group)
    }
    group.bytes += blocks.bytes[number]
    group.blocks++
  }
  return held.values()
}

/** The call with over half of all bytes; null for none. A site may call many, and none of them stands for the rest. */
export function mainCall(bytes: ReadonlyMap<string | null, number>, all: number): string | null {
  const through = mostOf(bytes)
  return through !== null && 2 * bytes.get(through)! > all ? through : null
}

/** The name with most bytes; null for none. */
export function mostOf(bytes: ReadonlyMap<string | null, number>): string | null {
  let most: [string | null, number] = [null, -1]
  for (const entry of bytes) if (entry[1] > most[1]) most = entry
  return most[0]
}
