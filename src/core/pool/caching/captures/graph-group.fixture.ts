// Groups of graphs on the simulated device: a decoder for many batches, and captures whose scratch shows its contents.

import { KiB, MiB } from '../../../base/bytes.js'
import { CudaError, OutOfMemoryError, PoolError } from '../../../base/errors.js'
import type { Graph } from '../../../order/graph.js'
import type { Stream } from '../../../order/stream.js'
import type { DeviceBuffer } from '../../buffer.js'
import { assertConsistent, TestDevice } from '../../pool.fixture.js'
import type { SharedPool } from '../../shared/shared-pool.js'
import { CachingPool } from '../caching-pool.js'
import type { PoolOptions } from '../options.js'
import type { GraphGroup, GraphGroupOptions } from './graph-group.js'
import type { GraphOutput, OutputLifetime } from './graph-output.js'

/** The pools whose groups pass the same tests: of one thread, by their backing, and one that threads share. */
export const KINDS = ['virtual', 'segments', 'shared'] as const

interface SetUpOptions extends Omit<PoolOptions, 'backing'> {
  readonly backing?: PoolOptions['backing'] | 'shared'
}

export function setUpGroup(options: SetUpOptions = {}, groupOptions: GraphGroupOptions = {}) {
  const device = new TestDevice()
  const pool = poolOf(device, options)
  const group = pool.createGraphGroup(groupOptions)
  const [a, b, c] = Array.from({ length: 3 }, () => device.createStream())
  return { device, pool, group, a, b, c }
}

/** A pool of either kind, as far as groups use them in the same way. */
export function poolOf(device: TestDevice, { backing = 'auto', ...options }: SetUpOptions): CachingPool {
  if (backing !== 'shared') return device.createPool({ ...options, backing })
  return device.createSharedPool(options).pool as unknown as CachingPool
}

/** Checks a pool of either kind. */
export function checkPool(pool: CachingPool): void {
  if (pool instanceof CachingPool) assertConsistent(pool)
  else (pool as SharedPool).check()
}

/** The arguments of captures in a group. */
export interface Captures {
  readonly pool: CachingPool
  readonly group: GraphGroup
}

/** A graph that writes `value` to scratch of `bytes`, and then copies it to an output. */
export function writer(
  { pool, group }: Captures,
  stream: Stream,
  value: number,
  bytes = 1 * MiB,
  lifetime: OutputLifetime = 'shared',
): Graph<GraphOutput> {
  return group.capture(stream, () => {
    const output = group.allocateOutput(bytes, stream, lifetime)
    using scratch = pool.allocate(bytes, stream)
    scratch.fill(value)
    output.copyFrom(scratch)
    return output
  })
}

/** The first and the last byte, after all work of the buffer's stream. */
export function endsOf(buffer: DeviceBuffer): [number, number] {
  const bytes = buffer.readSync()
  return [bytes[0], bytes[bytes.length - 1]]
}

/** Batches of a server, as its graphs are usually captured. */
export const BATCHES = Array.from({ length: 64 }, (_, index) => (index === 0 ? 1 : 8 * (index + 1)))

const LAYERS = 8
const ROW = 64 * KiB

/** Captures a decoder with `batch` rows: each layer has a hidden state, an attention and an inner layer. */
export function captureDecoder(
  pool: CachingPool,
  capture: (stream: Stream, work: () => void) => Graph,
  stream: Stream,
  batch: number,
  logits: () => DeviceBuffer | null,
): Graph {
  return capture(stream, () => {
    let hidden = pool.allocate(batch * ROW, stream)
    for (let layer = 0; layer < LAYERS; layer++) {
      const heads = pool.allocate(3 * batch * ROW, stream)
      const small = pool.allocate(batch * 100, stream)
      const next = pool.allocate(batch * ROW, stream)
      heads.free()
      const inner = pool.allocate(4 * batch * ROW + 4096 * (layer % 3), stream)
      hidden.free()
      small.free()
      inner.free()
      hidden = next
    }
    logits()
    hidden.free()
  })
}

/** Runs a step that a refused driver call may end; returns whether it did not. */
export function attempt(step: () => unknown): boolean {
  try {
    step()
    return true
  } catch (error) {
    if (error instanceof CudaError || error instanceof OutOfMemoryError || error instanceof PoolError) return false
    throw error
  }
}

/** The same for a capture, which leaves nothing if it fails: `work` lists the buffers that it has made. */
export function attemptCapture({ driver }: TestDevice, stream: Stream, work: (made: DeviceBuffer[]) => void): boolean {
  const made: DeviceBuffer[] = []
  if (attempt(() => work(made))) return true
  driver.clearFaults()
  if (stream.capture !== null) stream.abortCapture()
  for (const buffer of made) if (!buffer.freed) buffer.free()
  return false
}
