// A made-up recording of a training run, as long as wanted: a transformer whose steps have random batch sizes and
// lengths, so that sizes hardly ever repeat. PyTorch's policy places the blocks.

import { KiB, MiB } from '../src/core/base/bytes.js'
import { Random } from '../src/core/base/random.js'
import type { PolicyBlock } from '../src/recordings/trace/pytorch/model/policy-blocks.js'
import { PytorchPolicy } from '../src/recordings/trace/pytorch/model/pytorch-policy.js'
import { Action, type Trace } from '../src/recordings/trace/trace.js'
import { TraceBuilder } from '../src/recordings/trace/trace-builder.js'

const SEED = 1
const LAYERS = 24
const WIDTH = 1024
const MOST_BATCH = 16
const LEAST_LENGTH = 64
const MOST_LENGTH = 1024
const US_PER_EVENT = 17

interface Tensor {
  readonly block: PolicyBlock
  readonly bytes: number
}

class Run {
  readonly builder = new TraceBuilder()
  private readonly random = new Random(SEED)
  private readonly policy = new PytorchPolicy()
  private timeUs = 0

  /** Trains until at least this number of events is recorded. */
  train(events: number): void {
    for (let layer = 0; layer < LAYERS; layer++) {
      for (const copies of [1, 1, 2]) this.allocate(copies * 24 * WIDTH * WIDTH) // weights, gradients, moments
    }
    while (this.builder.events < events) this.step()
  }

  private step(): void {
    const { random } = this
    const tokens = (1 + random.below(MOST_BATCH)) * (LEAST_LENGTH + random.below(MOST_LENGTH - LEAST_LENGTH))
    const hidden = 2 * tokens * WIDTH
    const input = this.allocate(8 * tokens)
    const layers: Tensor[][] = []
    for (let layer = 0; layer < LAYERS; layer++) {
      const kept = [1, 3, 1, 4].map(factor => this.allocate(factor * hidden))
      kept.push(this.allocate(4 * tokens), this.allocate(random.logUniform(512, 256 * KiB)))
      this.use(hidden, random.logUniform(2 * KiB, 32 * MiB))
      layers.push(kept)
    }
    const logits = this.allocate(8 * hidden)
    for (const kept of layers.reverse()) {
      this.use(4 * hidden, random.logUniform(512, 8 * MiB))
      for (const tensor of kept) this.free(tensor)
      this.use(hidden)
    }
    this.free(logits)
    this.free(input)
  }

  /** Allocates temporary tensors, and frees them. */
  private use(...sizes: number[]): void {
    const tensors = sizes.map(bytes => this.allocate(bytes))
    for (const tensor of tensors) this.free(tensor)
  }

  private allocate(bytes: number): Tensor {
    const reserved = this.policy.reservedBytes
    const block = this.policy.allocate(bytes, 0)!
    const obtained = this.policy.reservedBytes - reserved
    if (obtained > 0) this.add(Action.segmentAlloc, block.address, obtained)
    this.add(Action.alloc, block.address, bytes)
    return { block, bytes }
  }

  private free({ block, bytes }: Tensor): void {
    const { address } = block
    this.policy.release(block)
    this.add(Action.freeRequested, address, bytes)
    this.add(Action.freeCompleted, address, bytes)
  }

  private add(action: number, address: number, bytes: number): void {
    this.timeUs += US_PER_EVENT
    this.builder.add(action, address, bytes, 0, this.timeUs)
  }
}

/** A run of at least this number of events, the same each time. */
export function trainingRun(events: number): Trace {
  const run = new Run()
  run.train(events)
  return run.builder.build({ file: `training run of ${events} events` })
}
