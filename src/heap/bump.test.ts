import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Random } from '../base/random.js'
import { Bump, type Span } from './bump.js'
import { UNIT_BYTES } from './size-classes.js'

const SEED = Number(process.env['HEAP_FUZZ_SEED'] ?? 1)
const STEPS = Number(process.env['HEAP_FUZZ_STEPS'] ?? 20_000)

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

/** A stack beside a list of its blocks, compared after each step. It keeps every handle and mark ever made. */
class Shadowed {
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

test('blocks follow each other, and a block that does not fit changes nothing', () => {
  const stack = new Shadowed(3, 13)
  for (const [bytes, fits] of [
    [1, true],
    [256, true],
    [257, true],
    [7 * 256, false],
    [6 * 256, true],
    [1, false],
  ] as const) {
    assert.equal(stack.take(bytes), fits)
    stack.check()
  }
  assert.deepEqual(
    stack.blocks.map(block => block.start),
    [3, 4, 5, 7],
  )
  stack.drop()
  stack.check()
  assert.equal(stack.take(10 * 256), true, 'all of it in one piece')
})

test('an aligned block skips units, which come back with it', () => {
  const stack = new Shadowed(3, 100)
  stack.take(256)
  stack.mark()
  stack.take(100, 16)
  stack.take(1, 8)
  stack.take(1)
  stack.checkSum()
  stack.check()
  assert.deepEqual(
    stack.blocks.map(block => block.start),
    [3, 16, 24, 25],
  )
  assert.equal(stack.take(256, 128), false)
  assert.equal(stack.rewind(stack.marks[0]), true)
  stack.check()
  assert.equal(stack.bump.top, 4)
})

test('the limit can rise', () => {
  const bump = new Bump(0, 2)
  assert.equal(bump.fits(3), false)
  assert.equal(bump.pushAligned(3, 600, 1), 0)
  bump.limit = 3
  assert.equal(bump.fits(3), true)
  assert.equal(bump.push(3, 600), 1)
  bump.check()
})

test('the stack takes more entries than it had room for at first', () => {
  const stack = new Shadowed(0, 10_000)
  for (let count = 0; count < 5000; count++) assert.equal(stack.take(1 + (count % 300), count % 7 === 0 ? 2 : 1), true)
  stack.check()
  stack.checkSum()
})

test('every sequence of six operations over eight units', () => {
  const FIXED = 5
  let sequences = 0
  const play = (choices: readonly number[]): number => {
    const stack = new Shadowed(1, 9)
    for (const choice of choices) {
      const { live, marks } = stack
      if (choice === 0) stack.take(1)
      else if (choice === 1) stack.take(3 * 256)
      else if (choice === 2) stack.take(500, 4)
      else if (choice === 3) stack.mark()
      else if (choice === 4) stack.drop()
      else if (choice < FIXED + live.length) stack.free(live[choice - FIXED])
      else stack.rewind(marks[choice - FIXED - live.length])
      stack.check()
      if (choice % 2 === 0) stack.checkSum()
    }
    sequences++
    return FIXED + stack.live.length + stack.marks.length
  }
  const extend = (prefix: number[]) => {
    const branches = play(prefix)
    if (prefix.length === 6) return
    for (let choice = 0; choice < branches; choice++) extend([...prefix, choice])
  }
  extend([])
  assert.ok(sequences > 10_000, `${sequences} sequences`)
})

test(`random programs against a shadow model, in phases (HEAP_FUZZ_SEED=${SEED} HEAP_FUZZ_STEPS=${STEPS})`, () => {
  const random = new Random(SEED)
  const PROGRAM_STEPS = 400
  const counts = { took: 0, full: 0, freed: 0, rewound: 0, refused: 0, dropped: 0 }
  for (let step = 0; step < STEPS; step += PROGRAM_STEPS) {
    const start = random.below(50)
    const stack = new Shadowed(start, start + 1 + random.below(3000))
    for (let inProgram = 0; inProgram < PROGRAM_STEPS; inProgram++) {
      const allocating = inProgram < PROGRAM_STEPS / 2 ? 0.7 : 0.3
      const dice = random.fraction()
      if (dice < allocating) {
        const alignUnits = random.below(4) === 0 ? 2 ** random.below(8) : 1
        counts[stack.take(random.logUniform(1, 60_000), alignUnits) ? 'took' : 'full']++
      } else if (dice < allocating + 0.1) {
        const { live } = stack
        if (live.length > 0) stack.free(live[random.below(live.length)])
        counts.freed++
      } else if (dice < allocating + 0.16) stack.mark()
      else if (dice < allocating + 0.22) {
        const mark = stack.marks[random.below(stack.marks.length)]
        if (mark !== undefined) counts[stack.rewind(mark) ? 'rewound' : 'refused']++
      } else if (dice < allocating + 0.23) {
        stack.drop()
        counts.dropped++
      } else if (random.below(8) === 0) stack.checkSum()
      if (inProgram % 16 === 0) stack.check()
    }
    stack.drop()
    stack.check()
  }
  for (const [what, count] of Object.entries(counts)) assert.ok(count > 10, `${what}: ${count}`)
})
