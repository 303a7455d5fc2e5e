// Runs the code of caching pools before a program does, so that V8 has compiled it: code that V8 interprets takes ten
// times as long, and in the first thousands of allocations most of it runs for the first time. The pools lie on a dry
// library, and the time is time in which the driver initialises itself anyway. Other pools share much of the code.

import { GiB, MiB } from '../base/bytes.js'
import { Random } from '../base/random.js'
import { Context } from '../driver/context.js'
import { DryLibrary } from '../driver/native/dry-library.js'
import { NativeDriver } from '../driver/native/native-driver.js'
import type { DeviceBuffer } from '../pool/buffer.js'
import { CachingPool } from '../pool/caching/caching-pool.js'
import { parsePoolOptions } from '../pool/caching/options.js'
import { hasSubscribers } from '../pool/channels.js'
import { Device } from './device.js'

const DEVICE_BYTES = 128 * GiB
/** Beyond this V8 holds an amount of bytes as a float64, and compiles code again that has met only smaller ones. */
const FLOAT64_BYTES = 3 * GiB
const LEAST_BYTES = 256
const MOST_BYTES = 64 * MiB
const BUFFERS = 200
/** Sizes to choose from. Half of the requests take one as it is: a cached large block serves its exact size only. */
const SIZES = 32
/**
 * In a round, a pool grows, then stitches, and then reuses what it has. Each round has a device of its own: V8 takes
 * what it has met once for a constant, and discards what it compiled around that when it meets another.
 */
const STEPS = 2_500
/** So many steps before its end it frees all that it holds, and trims its pool, as a program does between two tasks. */
const STEPS_AFTER_FREE = 500
const KEPT_SHARE = 0.9
const ROUNDS = 40
/** After so many steps a request exceeds `FLOAT64_BYTES`. */
const STEPS_OF_LARGE = 500
/** After so many steps it asks whether to go on. */
const STEPS_OF_QUESTION = 20
/** Five of six requests are on the first one, as in most programs. */
const STREAMS = 3

export class WarmUp {
  private roundsLeft = ROUNDS

  /**
   * Runs while `goesOn` returns true, unless the program listens to channels and would hear of pools that are not its
   * own. All calls take some 0.5 s together, for then all is compiled.
   */
  runWhile(goesOn: () => boolean): void {
    if (hasSubscribers()) return
    for (; this.roundsLeft > 0 && goesOn(); this.roundsLeft--) runPool(this.roundsLeft, goesOn)
  }
}

function runPool(round: number, goesOn: () => boolean): void {
  const random = new Random(round)
  using device = new Device(Context.open(new NativeDriver(new DryLibrary(DEVICE_BYTES, round % 2 === 0)), 0))
  const streams = Array.from({ length: STREAMS }, () => device.createStream())
  using large = createPool(device, 0) // its memory goes back at once
  using pool = createPool(device)
  const newSize = () => random.logUniform(LEAST_BYTES, MOST_BYTES)
  const sizes = Float64Array.from({ length: SIZES }, newSize)
  const buffers: (DeviceBuffer | null)[] = new Array(BUFFERS).fill(null)
  for (let step = 0; step < STEPS; step++) {
    if (step % STEPS_OF_QUESTION === 0 && !goesOn()) break
    if (step % STEPS_OF_LARGE === 0) large.allocate(FLOAT64_BYTES).free()
    if (step === STEPS - STEPS_AFTER_FREE) {
      freeAll(buffers)
      pool.trimTo(Math.floor(pool.stats().reservedBytes * KEPT_SHARE))
    }
    const index = random.below(BUFFERS)
    buffers[index]?.free()
    const size = random.below(SIZES)
    if (random.below(2) === 0) sizes[size] = newSize()
    const stream = streams[random.below(4) === 0 ? random.below(STREAMS) : 0]
    // A program's number may be an integer of V8's, or a float64 from a typed array.
    buffers[index] = pool.allocate(step % 2 === 0 ? sizes[size] : sizes[size] | 0, stream)
  }
  freeAll(buffers)
}

function freeAll(buffers: (DeviceBuffer | null)[]): void {
  for (const buffer of buffers) buffer?.free()
  buffers.fill(null)
}

/** As `device.createPool()` makes it, but not offered to a program that watches the pools of this process. */
function createPool({ clocks, defaultStream }: Device, releaseThresholdBytes = Infinity): CachingPool {
  const options = { maxPoolBytes: '90%', releaseThresholdBytes } as const
  return new CachingPool(clocks, defaultStream, parsePoolOptions(options, DEVICE_BYTES))
}
