// How fast a large PyTorch snapshot is read: bytes of the pickle per second, from the file to the finished trace.
// Run: node dist/bench/read-snapshot.js [--smoke] [--save DIR]

import { mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs'
import os from 'node:os'
import { join } from 'node:path'
import { MiB } from '../src/core/base/bytes.js'
import { Random } from '../src/core/base/random.js'
import { readRecording } from '../src/recordings/trace/formats/read-recording.js'
import { pickleSnapshot } from '../src/recordings/trace/pytorch/pytorch-snapshot-writer.js'
import { Action, type Trace } from '../src/recordings/trace/trace.js'
import { TraceBuilder } from '../src/recordings/trace/trace-builder.js'
import { median, save } from './machine.js'
import { benchmark, optionsOf } from './options.js'

const values = optionsOf(benchmark('how fast a large snapshot is read'))
const MEGABYTES = values.smoke ? 2 : 100
const BYTES_PER_EVENT = 125
const RUNS = 5
const SEED = 1
const FRAMES = 3000
const STACKS = 800
const LEAST_DEPTH = 8
const MOST_DEPTH = 28
const SLOTS = 512
const SLOT_BYTES = 64 * MiB
const BASE = 0x7f0000000000

/** A made-up training run: random sizes in fixed places, allocated and freed from many call sites. */
function generate(events: number): Trace {
  const random = new Random(SEED)
  const builder = new TraceBuilder()
  const frames = Array.from({ length: FRAMES }, (_, i) =>
    builder.stacks.entry(`torch/nn/modules/module_${i % 97}.py`, 3 * i, `forward_${i}`),
  )
  const stacks = Array.from({ length: STACKS }, () => {
    const depth = LEAST_DEPTH + random.below(MOST_DEPTH - LEAST_DEPTH)
    return builder.stacks.number(Array.from({ length: depth }, () => frames[random.below(FRAMES)]))
  })
  const sizes = new Float64Array(SLOTS)
  let timeUs = 1.79e15
  const add = (action: number, slot: number, stack: number) => {
    timeUs += random.below(40)
    builder.add(action, BASE + slot * SLOT_BYTES, sizes[slot], 0, timeUs, stack)
  }
  builder.add(Action.segmentAlloc, BASE, SLOTS * SLOT_BYTES, 0, timeUs)
  while (builder.events < events) {
    const slot = random.below(SLOTS)
    if (sizes[slot] > 0) {
      add(Action.freeRequested, slot, stacks[random.below(STACKS)])
      add(Action.freeCompleted, slot, 0)
    }
    sizes[slot] = random.logUniform(512, SLOT_BYTES)
    add(Action.alloc, slot, stacks[random.below(STACKS)])
  }
  return builder.build({ file: 'generated' })
}

const folder = mkdtempSync(join(os.tmpdir(), 'cuda-mempool-bench-'))
try {
  const path = join(folder, 'generated.pickle')
  writeFileSync(path, pickleSnapshot(generate((MEGABYTES * 1e6) / BYTES_PER_EVENT)))
  const bytes = statSync(path).size
  const speeds: number[] = []
  let events = 0
  let checksum = 0
  for (let run = 0; run < RUNS; run++) {
    const start = performance.now()
    const trace = readRecording(path)
    speeds.push(bytes / 1000 / (performance.now() - start))
    events = trace.events
    checksum = trace.peakRequestedBytes
  }
  const result = {
    machine: { cpu: os.cpus()[0]?.model ?? 'unknown', cores: os.cpus().length, node: process.version },
    parameters: { seed: SEED, bytes, events, frames: FRAMES, stacks: STACKS, runs: RUNS },
    checksum,
    megabytesPerSecond: { median: Math.round(median(speeds)), first: Math.round(speeds[0]) },
  }
  console.log(JSON.stringify(result, null, 2))
  save(values.save, 'read-snapshot', result)
} finally {
  rmSync(folder, { recursive: true })
}
