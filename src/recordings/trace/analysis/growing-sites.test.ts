import assert from 'node:assert/strict'
import { readdirSync } from 'node:fs'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { MiB } from '../../../core/base/bytes.js'
import { readRecording } from '../formats/read-recording.js'
import { Action, type Trace } from '../trace.js'
import { TraceBuilder } from '../trace-builder.js'
import { growingSitesOf } from './growing-sites.js'
import { stepLeaksOf } from './step-leaks.js'
import { stepsOf } from './steps.js'

type Line = readonly [filename: string, line: number, name: string]
const KEPT: Line = ['train.py', 66, 'log_loss']
const TEMPORARY: Line = ['model.py', 44, 'forward']
const WEIGHTS: Line = ['train.py', 30, 'main']

class Program {
  private readonly builder = new TraceBuilder()
  private readonly annotations: { name: string; timeUs: number; isStart: boolean }[] = []
  private at = 0

  /** Allocates a block and returns its address. */
  allocate(mebibytes: number, ...lines: readonly Line[]): number {
    const { stacks } = this.builder
    const stack = lines.length === 0 ? 0 : stacks.number(lines.map(line => stacks.entry(...line)))
    const address = ++this.at * 2 ** 30
    this.builder.add(Action.alloc, address, mebibytes * MiB, 0, this.at, stack)
    return address
  }

  free(address: number): void {
    this.builder.add(Action.freeRequested, address, 0, 0, ++this.at)
  }

  /** Blocks that come and go. */
  work(times = 5, line: Line = TEMPORARY): void {
    for (let i = 0; i < times; i++) this.free(this.allocate(12, line))
  }

  endStep(): void {
    const mark = { name: 'Optimizer.step#AdamW.step', timeUs: ++this.at }
    this.annotations.push({ ...mark, isStart: true }, { ...mark, isStart: false })
  }

  inPool(): void {
    this.builder.notePool(this.builder.events - 1, this.builder.pools.number('0,1'))
  }

  end(): Trace {
    return this.builder.build({ file: 'program', annotations: this.annotations })
  }
}

/** A program of cycles with weights at its start. */
function cycles(count: number, cycle: (program: Program, index: number) => void): Trace {
  const program = new Program()
  for (let i = 0; i < 4; i++) program.allocate(50, WEIGHTS)
  for (let i = 0; i < count; i++) {
    program.work()
    cycle(program, i)
  }
  return program.end()
}

const sitesOf = (trace: Trace) => growingSitesOf(trace).map(({ site, blocks, bytes }) => [site, blocks, bytes / MiB])

test('a call site that keeps a block of each cycle grows, without any step', () => {
  assert.deepEqual(sitesOf(cycles(8, program => program.allocate(3, KEPT))), [['train.py:66 log_loss', 8, 24]])
  const program = new Program()
  for (let weight = 0; weight < 300; weight++) program.allocate(1, WEIGHTS)
  for (let i = 0; i < 8; i++) {
    program.work()
    program.allocate(3, KEPT)
  }
  assert.deepEqual(sitesOf(program.end()), [['train.py:66 log_loss', 8, 24]], 'a long load before it')
  const everySecond = cycles(12, (program, i) => {
    if (i % 2 === 0) program.allocate(3, KEPT)
  })
  assert.deepEqual(sitesOf(everySecond), [['train.py:66 log_loss', 6, 18]])
})

test('blocks without a call stack grow by their size', () => {
  const trace = cycles(8, program => program.allocate(3))
  assert.deepEqual(growingSitesOf(trace), [
    { site: null, blockBytes: 3 * MiB, blocks: 8, bytes: 24 * MiB, firstBytes: null },
  ])
})

test('a call site that replaces its block by a larger one each time grows, but not where sizes vary', () => {
  const replacing = (sizeOf: (cycle: number) => number) => {
    let held = 0
    return cycles(10, (program, i) => {
      const next = program.allocate(sizeOf(i), KEPT)
      if (i > 0) program.free(held)
      held = next
    })
  }
  assert.deepEqual(growingSitesOf(replacing(i => 3 * (i + 1))), [
    { site: 'train.py:66 log_loss', blockBytes: null, blocks: 1, bytes: 30 * MiB, firstBytes: 3 * MiB },
  ])
  assert.deepEqual(sitesOf(replacing(i => (i === 5 ? 1 : 3 * (i + 1)))), [])
  assert.deepEqual(sitesOf(replacing(i => Math.min(12, 3 * (i + 1)))), [])
  assert.deepEqual(sitesOf(replacing(() => 3)), [])
})

test('a call site that replaces the block of each layer by a larger one grows, whenever the older ones go', () => {
  for (const atOnce of [true, false]) {
    const layered = (mebibytesOf: (token: number) => number) => {
      const held: number[] = []
      return cycles(20, (program, token) => {
        for (let layer = 0; layer < 3; layer++) {
          held.push(program.allocate(mebibytesOf(token), KEPT))
          if (atOnce && token > 0) program.free(held.shift()!)
        }
        while (held.length > 3) program.free(held.shift()!)
      })
    }
    assert.deepEqual(sitesOf(layered(token => token + 1)), [['train.py:66 log_loss', 3, 60]])
    assert.deepEqual(sitesOf(layered(token => (token % 10) + 1)), [], 'a second request')
    assert.deepEqual(sitesOf(layered(() => 3)), [])
  }
})

test('a cache that is full by the middle or near the end does not grow, nor does a ring of buffers', () => {
  for (const filled of [20, 30, 36]) {
    const trace = cycles(40, (program, i) => {
      if (i < filled) program.allocate(3, KEPT)
    })
    assert.deepEqual(sitesOf(trace), [], `${filled} of 40 cycles`)
  }
  const ring: number[] = []
  const trace = cycles(40, program => {
    ring.push(program.allocate(3, KEPT))
    if (ring.length > 8) program.free(ring.shift()!)
  })
  assert.deepEqual(sitesOf(trace), [])
})

test('misses of a cache that become ever rarer are no leak', () => {
  for (const isMiss of [(i: number) => Number.isInteger(Math.log2(i + 1)), (i: number) => i < 20 || i % 15 === 5]) {
    const trace = cycles(64, (program, i) => {
      if (isMiss(i)) program.allocate(3, KEPT)
    })
    assert.deepEqual(sitesOf(trace), [])
  }
})

test('what was made in the second half, or only at the end, is the work under way', () => {
  const late = cycles(20, (program, i) => {
    if (i > 10) program.allocate(3, KEPT)
  })
  assert.deepEqual(sitesOf(late), [])
})

test('a program that loads weights does not leak', () => {
  const loaders: Line[][] = [
    [WEIGHTS],
    [['/env/site-packages/torch/nn/modules/module.py', 1357, 'convert'], WEIGHTS],
    [['/env/site-packages/torch/nn/modules/linear.py', 100, '__init__'], WEIGHTS],
  ]
  loaders.forEach((lines, i) => {
    const program = new Program()
    for (let weight = 0; weight < 30; weight++) {
      // A plain copy frees little; the others have two copies for each weight that go.
      if (i > 0) program.work(2)
      else if (weight % 4 === 0) program.work(1)
      program.allocate(10, ...lines)
    }
    assert.deepEqual(sitesOf(program.end()), [], lines[0][2])
  })
})

test('functions of the program that have the names of loaders may leak', () => {
  for (const name of ['convert', '_apply', 'load_model']) {
    const trace = cycles(8, program => program.allocate(3, ['/home/me/image.py', 4, name], WEIGHTS))
    assert.equal(growingSitesOf(trace).length, 1, name)
  }
})

test('neither captures of graphs nor the frees at the end of the program are its time', () => {
  const program = new Program()
  for (let i = 0; i < 20; i++) {
    const address = program.allocate(3, TEMPORARY)
    program.inPool()
    program.free(address)
  }
  const held = [1, 2, 3, 4, 5, 6, 7, 8].map(() => {
    program.work(2)
    return program.allocate(3, KEPT)
  })
  for (const address of held) program.free(address)
  assert.deepEqual(sitesOf(program.end()), [['train.py:66 log_loss', 8, 24]])
})

test('what captures of graphs keep is not counted', () => {
  const trace = cycles(10, program => {
    program.allocate(3, KEPT)
    program.inPool()
  })
  assert.deepEqual(sitesOf(trace), [])
})

function leaksOf(trace: Trace) {
  const { judged, grows, sites } = stepLeaksOf(trace, stepsOf(trace)!)
  return { judged, grows, sites: sites.map(site => [site.site, site.steps, site.leftBlocks, site.blocks]) }
}

test('steps name the site that grows, beside a first step that makes what stays', () => {
  const trace = cycles(8, (program, i) => {
    program.allocate(3, KEPT)
    if (i === 0) for (let k = 0; k < 8; k++) program.allocate(50, ['train.py', 70, 'step'])
    program.endStep()
  })
  assert.deepEqual(leaksOf(trace), { judged: 5, grows: true, sites: [['train.py:66 log_loss', 5, 5, 8]] })
})

test('a cache that early steps fill does not grow, nor does a ring that later steps free', () => {
  const filled = cycles(12, (program, i) => {
    if (i < 5) program.allocate(3, KEPT)
    program.endStep()
  })
  assert.deepEqual(leaksOf(filled), { judged: 9, grows: false, sites: [] })
  const ring: number[] = []
  const rung = cycles(20, program => {
    ring.push(program.allocate(3, KEPT))
    if (ring.length > 5) program.free(ring.shift()!)
    program.endStep()
  })
  assert.ok(stepsOf(rung)!.steps[5].leftBytes! > 0)
  assert.deepEqual(leaksOf(rung), { judged: 17, grows: false, sites: [] })
})

test('growth that is of another call site in each step is still growth', () => {
  const trace = cycles(8, (program, i) => {
    program.allocate(3, ['train.py', i, 'log_loss'])
    program.endStep()
  })
  assert.deepEqual(leaksOf(trace), { judged: 5, grows: true, sites: [] })
})

test('blocks that few steps leave have their call site, which need not grow', () => {
  const trace = cycles(40, (program, i) => {
    if (i % 15 === 8) program.allocate(16, KEPT)
    program.endStep()
  })
  assert.deepEqual(leaksOf(trace), { judged: 37, grows: false, sites: [] })
  assert.deepEqual(
    stepLeaksOf(trace, stepsOf(trace)!).kept.map(({ site, blocks, bytes }) => [site, blocks, bytes / MiB]),
    [['train.py:66 log_loss', 2, 32]],
  )
})

test('too few steps, or a recording without events, tell nothing', () => {
  for (const count of [3, 4]) {
    const few = cycles(count, program => {
      program.allocate(3, KEPT)
      program.endStep()
    })
    assert.deepEqual(leaksOf(few), { judged: count - 3, grows: false, sites: [] })
  }
  assert.deepEqual(sitesOf(new Program().end()), [])
})

const TRACES = fileURLToPath(new URL('../../../../../traces/', import.meta.url))
const recordings = ['', 'settings/'].flatMap(folder =>
  readdirSync(TRACES + folder).flatMap(name => (name.endsWith('.pickle.gz') ? [folder + name] : [])),
)

test('no real recording of a sound program is called a leak', () => {
  assert.ok(recordings.length > 40)
  for (const name of recordings) {
    const trace = readRecording(TRACES + name)
    const steps = stepsOf(trace)
    assert.deepEqual(growingSitesOf(trace), [], name)
    if (steps !== null) assert.equal(stepLeaksOf(trace, steps).grows, false, name)
  }
})

test('a program that frees at its end what it kept leaks all the same', () => {
  const kept: number[] = []
  const trace = (endsSteps: boolean) =>
    cycles(8, (program, index) => {
      kept.push(program.allocate(3, KEPT))
      if (endsSteps) program.endStep()
      if (index === 7) for (const address of kept.splice(0)) program.free(address)
    })
  assert.deepEqual(
    growingSitesOf(trace(false)).map(({ site, blocks }) => [site, blocks]),
    [['train.py:66 log_loss', 8]],
  )
  const stepped = trace(true)
  const { sites } = stepLeaksOf(stepped, stepsOf(stepped)!)
  assert.deepEqual(
    sites.map(({ site, leftBlocks, steps }) => [site, leftBlocks, steps]),
    [['train.py:66 log_loss', 5, 5]],
  )
})

test('few blocks that come at a steady rate grow, wherever the recording ends in its last cycle', () => {
  for (let count = 5; count <= 12; count++) {
    for (const rest of [1, 3, 6]) {
      const program = new Program()
      for (let cycle = 0; cycle < count; cycle++) {
        program.allocate(3, KEPT)
        program.work(cycle === count - 1 ? rest : 6)
      }
      assert.equal(growingSitesOf(program.end()).length, 1, `${count} cycles, ${rest} of 6 in the last`)
    }
  }
})
