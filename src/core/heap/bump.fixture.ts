// A stack beside a list of its blocks, for the tests of the stack.

import assert from 'node:assert/strict'
import { Bump, type Span } from './bump.js'
import { UNIT_BYTES } from './size-classes.js'

interface Block {
  readonly entry: number
  readonly span: Span
  readonly start: number
  readonly units: number
  readonly bytes: number
  freed: boolean
}

interface Mark {
  readonly entry: number
  readonly span: Span
  /** the entries below it */
  readonly blocks: readonly Block[]
}

/** Compares the stack with the list after each step. It keeps every handle and mark ever made. */
export class Shadowed {
  readonly bump: Bump
  blocks: Block[] = []
  readonly everyBlock: Block[] = []
  readonly marks: Mark[] = []
  private peakUnits = 0

  constructor(
    private readonly start: number,
    private readonly limit: number,
  ) {
    this.bump = new Bump(start, limit)
  }

  /** Takes a block if there is room; returns whether there was. */
  take(bytes: number, alignUnits = 1): boolean {
    const { bump } = this
    const units = Math.ceil(bytes / UNIT_BYTES)
    const top = bump.top
    const start = Math.ceil(this.top / alignUnits) * alignUnits
    const isPlain = alignUnits === 1 && bump.fits(units)
    const entry = isPlain ? bump.push(units, bytes) : bump.pushAligned(units, bytes, alignUnits)
    assert.equal(entry !== 0, start + units <= this.limit)
    if (entry === 0) {
      assert.equal(bump.top, top, 'nothing advances without room')
      return false
    }
    assert.equal(entry, bump.last)
    const block = { entry, span: bump.span, start, units, bytes, freed: false }
    this.blocks.push(block)
    this.everyBlock.push(block)
    this.peakUnits = Math.max(this.peakUnits, this.liveUnits)
    return true
  }

  free(block: Block): void {
    block.freed = true
    this.bump.free(block.entry)
  }

  mark(): void {
    const { last } = this.bump
    this.marks.push({ entry: last, span: this.bump.spanOf(last), blocks: [...this.blocks] })
  }

  /** Drops to a mark if the mark still holds; returns whether it did. */
  rewind(mark: Mark): boolean {
    const { bump } = this
    const holds = mark.entry <= mark.span.last
    const expected = mark.blocks.every((block, index) => this.blocks[index] === block)
    assert.equal(holds, expected, 'a mark holds as long as nothing below it was dropped')
    if (!holds) return false
    bump.dropTo(mark.entry)
    this.blocks = [...mark.blocks]
    return true
  }

  drop(): void {
    this.bump.dropTo(0)
    this.blocks = []
  }

  get live(): Block[] {
    return this.blocks.filter(block => !block.freed)
  }

  check(): void {
    const { bump, live } = this
    bump.check()
    assert.deepEqual(
      [bump.liveUnits, bump.liveBlocks, bump.allocations, bump.peakLiveUnits, bump.top],
      [this.liveUnits, live.length, this.everyBlock.length, this.peakUnits, this.top],
    )
    for (const block of live) {
      assert.equal(bump.startOf(block.entry), block.start)
      assert.equal(bump.requestedBytesOf(block.entry), block.bytes)
    }
    const alive = new Set(live)
    for (const block of this.everyBlock) assert.equal(bump.isLive(block.entry, block.span), alive.has(block))
  }

  checkSum(): void {
    assert.equal(
      this.bump.requestedBytes,
      this.live.reduce((sum, block) => sum + block.bytes, 0),
    )
  }

  private get liveUnits(): number {
    return this.live.reduce((sum, block) => sum + block.units, 0)
  }

  private get top(): number {
    const last = this.blocks.at(-1)
    return last === undefined ? this.start : last.start + last.units
  }
}
