// Recordings of programs that ran out of memory from a known cause.

import { fileURLToPath } from 'node:url'
import { GiB, MiB } from '../core/base/bytes.js'
import { readRecording } from '../recordings/trace/formats/read-recording.js'
import { pickleSnapshot } from '../recordings/trace/pytorch/pytorch-snapshot-writer.js'
import { Action, type Trace } from '../recordings/trace/trace.js'
import { TraceBuilder } from '../recordings/trace/trace-builder.js'

const RETRIES = fileURLToPath(new URL('../../../traces/oom-retry-2gib.pickle.gz', import.meta.url))
/** The program of that recording could have 2 GiB, by set_per_process_memory_fraction. */
export const RETRIES_LIMIT_BYTES = 2 * GiB

/** The recording of a program that ran out of memory 17 times, cut behind the `count`th time. */
export function cutRetries(count: number): Trace {
  const { action, address, bytes, stream, streams, timeUs, settings } = readRecording(RETRIES)
  const builder = new TraceBuilder()
  for (let event = 0, failed = 0; failed < count; event++) {
    builder.add(action[event], address[event], bytes[event], streams[stream[event]], timeUs[event])
    if (action[event] === Action.outOfMemory) failed++
  }
  return builder.build({ file: 'cut', settings })
}

/** A program in PyTorch whose allocator takes these steps. Sizes in MiB. */
export class CrashingProgram {
  private readonly builder = new TraceBuilder()
  private timeUs = 0

  /** Takes a segment of the device; returns its address. */
  segment(address: number, size: number, stream = 0): number {
    return this.note(Action.segmentAlloc, address, size * MiB, stream)
  }

  /** Maps memory of an expandable segment. */
  map(address: number, size: number, stream = 0): number {
    return this.note(Action.segmentMap, address, size * MiB, stream)
  }

  /** Allocates at an address, in a line of `train.py`. */
  allocate(address: number, size: number, stream = 0, line = 0): number {
    return this.note(Action.alloc, address, size * MiB, stream, this.stackOf(line))
  }

  free(address: number, size: number, stream = 0): void {
    this.request(address, size, stream)
    this.note(Action.freeCompleted, address, size * MiB, stream)
  }

  /** Frees a block that another stream still uses. */
  request(address: number, size: number, stream = 0): void {
    this.note(Action.freeRequested, address, size * MiB, stream)
  }

  /** The request that fails; `free` is what the device has, null if PyTorch does not say. */
  fail(size: number, free: number | null, stream = 0, line = 0): void {
    this.note(Action.outOfMemory, free === null ? Number.NaN : free * MiB, size * MiB, stream, this.stackOf(line))
  }

  trace(): Trace {
    return this.builder.build({ file: 'crash', settings: '' })
  }

  /** The snapshot file. */
  file(): Buffer {
    return pickleSnapshot(this.trace())
  }

  private note(action: number, address: number, bytes: number, stream: number, stack = 0): number {
    this.builder.add(action, address, bytes, stream, this.timeUs++, stack)
    return address
  }

  private stackOf(line: number): number {
    if (line === 0) return 0
    const { stacks } = this.builder
    return stacks.number([
      stacks.entry('/opt/lib/python3.11/site-packages/torch/nn/modules/linear.py', 116, 'forward'),
      stacks.entry('/home/me/run/train.py', line, line < 100 ? 'forward' : 'step'),
      stacks.entry('/home/me/run/train.py', 200, 'main'),
    ])
  }
}
