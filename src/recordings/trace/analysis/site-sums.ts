// Sums of blocks by call site, and the parts of a recording in which each site has some. Blocks without a call stack
// and of one size stand for one site: a recording of RMM tells them apart by size only.

import { CallSites } from '../frames/call-sites.js'
import type { Trace } from '../trace.js'

/** Blocks of one call site. */
export interface SiteBlocks {
  /** the line of the program, as `file:line function`; null without a call stack */
  readonly site: string | null
  /** the bytes of each block, as requested; null if they differ */
  readonly blockBytes: number | null
  readonly blocks: number
  /** of all these blocks, as requested */
  readonly bytes: number
}

/** The blocks of a site, and where they lie. */
interface SiteSum {
  readonly of: SiteBlocks
  /** the parts with a block, rising, each once */
  readonly parts: readonly number[]
  /** the numbers of the blocks, rising */
  readonly numbers: readonly number[]
}

interface Sum {
  readonly site: string | null
  blockBytes: number | null
  bytes: number
  readonly parts: number[]
  readonly numbers: number[]
}

export class SiteSums {
  private readonly sites: CallSites
  private readonly sums = new Map<string | number, Sum>()

  constructor(private readonly trace: Trace) {
    this.sites = CallSites.of(trace.stacks)
  }

  /** Counts a block for a part. Blocks and parts come in rising order. */
  add(number: number, part = 0): void {
    const { blocks } = this.trace
    const bytes = blocks.bytes[number]
    const { site } = this.sites.siteOf(blocks.stack[number])
    let sum = this.sums.get(site ?? bytes)
    if (sum === undefined) {
      sum = { site, blockBytes: bytes, bytes: 0, parts: [], numbers: [] }
      this.sums.set(site ?? bytes, sum)
    }
    if (sum.blockBytes !== bytes) sum.blockBytes = null
    sum.bytes += bytes
    sum.numbers.push(number)
    if (sum.parts.at(-1) !== part) sum.parts.push(part)
  }

  /** Most bytes first. */
  list(): SiteSum[] {
    const sums = Array.from(this.sums.values(), ({ site, blockBytes, bytes, parts, numbers }) => {
      return { of: { site, blockBytes, blocks: numbers.length, bytes }, parts, numbers }
    })
    return sums.sort((a, b) => b.of.bytes - a.of.bytes)
  }
}
