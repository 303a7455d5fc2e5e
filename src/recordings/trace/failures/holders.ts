// The places in a program that hold memory at one event.

import { CallSites } from '../frames/call-sites.js'
import { BEFORE, type Trace } from '../trace.js'
import { stackSums } from './stack-sums.js'

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
  /** whether it called that line for all of these bytes */
  readonly throughAll: boolean
  /** whether the blocks are from before the recording */
  readonly before: boolean
}

/** The holders of the blocks `live`, most bytes first. */
export function holdersOf(trace: Trace, live: readonly number[]): Holder[] {
  const sites = CallSites.of(trace.stacks)
  const found = new Map<string, { holder: Holder; throughBytes: Map<string | null, number> }>()
  for (const [stack, { bytes, blocks }] of stackSums(trace, live)) {
    const before = stack === BEFORE
    const { site, through } = sites.siteOf(before ? 0 : stack)
    const key = placeKey(site, before)
    const { holder, throughBytes } = found.get(key) ?? {
      holder: { bytes: 0, blocks: 0, site, through, throughAll: true, before },
      throughBytes: new Map(),
    }
    throughBytes.set(through, (throughBytes.get(through) ?? 0) + bytes)
    const sum = { ...holder, bytes: holder.bytes + bytes, blocks: holder.blocks + blocks }
    found.set(key, { holder: sum, throughBytes })
  }
  return [...found.values()]
    .map(({ holder, throughBytes }) => ({ ...holder, ...mainCall(throughBytes, holder.bytes) }))
    .sort((a, b) => b.bytes - a.bytes)
}

/** The key of a site, or of blocks without a call stack. */
export function placeKey(site: string | null, before: boolean): string {
  return site ?? (before ? ' before' : ' unknown')
}

/** The call with over half of all bytes; null for none. A site may call many, and none of them stands for the rest. */
export function mainCall(
  bytes: ReadonlyMap<string | null, number>,
  all: number,
): Pick<Holder, 'through' | 'throughAll'> {
  const most = mostOf(bytes)
  const through = most !== null && 2 * bytes.get(most)! > all ? most : null
  return { through, throughAll: through !== null && bytes.get(through) === all }
}

/** The name with most bytes; null for none. */
export function mostOf(bytes: ReadonlyMap<string | null, number>): string | null {
  let most: [string | null, number] = [null, -1]
  for (const entry of bytes) if (entry[1] > most[1]) most = entry
  return most[0]
}
