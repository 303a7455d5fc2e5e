// The places in a program that hold memory at one event.

import { type Frame, frameText, stackFrames, type Trace } from '../trace.js'

/** The blocks held by a line of the program. */
export interface Holder {
  /** requested bytes of its blocks */
  readonly bytes: number
  /** how many blocks there are */
  readonly blocks: number
  /**
   * the innermost line of Python outside of PyTorch, as `file:line function`; null for blocks without a call stack
   */
  readonly site: string | null
  /** the line of PyTorch that the site called for most of these bytes, if any */
  readonly through: string | null
  /** whether the blocks are from before the recording */
  readonly before: boolean
}

const OF_PYTORCH = /(^|\/)torch\//
const NATIVE = /\.(c|cc|cpp|cu|cuh|h|hpp|inl)$/

/** The holders of the blocks `live`, most bytes first. */
export function holdersOf(trace: Trace, live: readonly number[]): Holder[] {
  const { blocks, stacks } = trace
  const sites = new Map<number, ReturnType<typeof siteOf>>()
  const groups = new Map<string, { holder: Holder; throughBytes: Map<string | null, number> }>()
  for (const number of live) {
    const stack = blocks.stack[number]
    let place = sites.get(stack)
    if (place === undefined) {
      place = siteOf(stackFrames(stacks, stack))
      sites.set(stack, place)
    }
    const { site, through } = place
    const before = site === null && number < blocks.initial
    const key = site ?? (before ? ' before' : ' unknown')
    let group = groups.get(key)
    if (group === undefined) {
      group = { holder: { bytes: 0, blocks: 0, site, through, before }, throughBytes: new Map() }
      groups.set(key, group)
    }
    const bytes = blocks.bytes[number]
    group.holder = { ...group.holder, bytes: group.holder.bytes + bytes, blocks: group.holder.blocks + 1 }
    group.throughBytes.set(through, (group.throughBytes.get(through) ?? 0) + bytes)
  }
  return [...groups.values()]
    .map(({ holder, throughBytes }) => ({ ...holder, through: mostOf(throughBytes) }))
    .sort((a, b) => b.bytes - a.bytes)
}

/** The line to show for a call stack, innermost frame first. */
export function siteOf(frames: readonly Frame[]): { site: string | null; through: string | null } {
  const lines = frames.filter(({ filename }) => filename.includes('.') && !NATIVE.test(filename))
  const own = lines.find(({ filename }) => !OF_PYTORCH.test(filename))
  if (own === undefined) {
    const frame = lines[0] ?? frames[0]
    return { site: frame === undefined ? null : frameText(frame), through: null }
  }
  const inner = lines[0]
  return { site: frameText(own), through: inner === own ? null : frameText(inner) }
}

function mostOf(bytes: ReadonlyMap<string | null, number>): string | null {
  let most: [string | null, number] = [null, -1]
  for (const entry of bytes) if (entry[1] > most[1]) most = entry
  return most[0]
}
