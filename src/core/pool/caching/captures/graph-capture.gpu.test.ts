// Graphs with kernels that really run, and what the driver allows while a stream is captured. Without a GPU it fails.

import assert from 'node:assert/strict'
import { after, describe, it } from 'node:test'
import { KiB, MiB } from '../../../base/bytes.js'
import { CudaError } from '../../../base/errors.js'
import { CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED } from '../../../driver/constants.js'
import type { Graph } from '../../../order/graph.js'
import { signal } from '../../../order/order.fixture.js'
import type { Stream } from '../../../order/stream.js'
import type { DeviceBuffer } from '../../buffer.js'
import { GpuDevice } from '../../gpu-device.fixture.js'

const gpu = new GpuDevice()
after(() => gpu.close())

const BYTES = 4 * MiB

function capture(stream: Stream, work: () => void): Graph {
  stream.beginCapture('global')
  try {
    work()
    return stream.endCapture()
  } finally {
    if (stream.capture !== null) stream.abortCapture()
  }
}

for (const backing of ['virtual', 'segments'] as const) {
  describe(`graphs on a GPU, ${backing} memory`, () => {
    it('in a capture in global mode the pool grows, memory is used again, and live buffers stay valid', () => {
      using pool = gpu.createPool({ backing, maxPoolBytes: 512 * MiB })
      using a = gpu.createStream()
      using b = gpu.createStream()
      const input = pool.allocate(BYTES, a)
      gpu.stamp(input, 1)
      let held!: DeviceBuffer
      using graph = capture(a, () => {
        const first = pool.allocate(BYTES, a)
        const { ptr } = first
        gpu.stamp(first, 2)
        gpu.compare(first, 2)
        first.free()
        signal(a, b)
        const second = pool.allocate(BYTES, b)
        assert.equal(second.ptr, ptr, 'the captured edge lets the other stream have it')
        gpu.stamp(second, 3)
        gpu.compare(second, 3)
        gpu.compare(input, 1, b)
        held = pool.allocate(BYTES, b)
        gpu.stamp(held, 4)
        second.free()
        signal(b, a)
      })
      const other = pool.allocate(64 * MiB, b)
      for (const stream of [a, b, a]) {
        const release = gpu.hold(stream)
        graph.launch(stream)
        graph.launch(stream)
        gpu.stamp(other, 5)
        release()
        gpu.compare(held, 4, stream)
      }
      gpu.compare(other, 5)
      assert.deepEqual(gpu.damages(), [])
      graph.close()
      assert.equal(held.freed, false)
      for (const buffer of [held, other, input]) buffer.free()
      pool.check()
    })

    it('memory of a closed graph is handed out again when its launches are done', () => {
      using pool = gpu.createPool({ backing, maxPoolBytes: 64 * MiB })
      using a = gpu.createStream()
      using b = gpu.createStream()
      const graph = capture(a, () => {
        using buffer = pool.allocate(48 * MiB, a)
        gpu.stamp(buffer, 1)
        gpu.compare(buffer, 1)
      })
      assert.equal(pool.tryAllocate(48 * MiB, b), null)
      gpu.spin(a, 20)
      graph.launch(a)
      graph.close()
      const next = pool.allocate(48 * MiB, b)
      gpu.stamp(next, 2)
      gpu.compare(next, 2)
      assert.deepEqual(gpu.damages(), [])
      next.free()
      pool.check()
    })
  })
}

describe('calls that the driver allows while a stream is captured', () => {
  const { driver, context } = gpu
  const granule = driver.cuMemGetAllocationGranularity(context.device)
  const spare = gpu.createStream()
  const outside = driver.cuEventCreate(2)
  driver.cuEventRecord(outside, spare.handle)
  const probes: Record<string, () => void> = {
    'cuMemAlloc and cuMemFree': () => driver.cuMemFree(driver.cuMemAlloc(KiB)),
    'cuMemCreate to cuMemUnmap': () => {
      const ptr = driver.cuMemAddressReserve(granule, 0)
      const handle = driver.cuMemCreate(granule, context.device, 0)
      driver.cuMemMap(ptr, granule, handle)
      driver.cuMemSetAccess(ptr, granule, [context.device])
      driver.cuMemUnmap(ptr, granule)
      driver.cuMemRelease(handle)
      driver.cuMemAddressFree(ptr, granule)
    },
    'cuEventRecord of another stream': () => driver.cuEventRecord(outside, spare.handle),
    'cuEventQuery of an event outside': () => driver.cuEventQuery(outside),
    'cuEventSynchronize of an event outside': () => driver.cuEventSynchronize(outside),
    cuEventCreate: () => driver.cuEventDestroy(driver.cuEventCreate(2)),
    cuMemGetInfo: () => driver.cuMemGetInfo(),
    'cuStreamIsCapturing of the legacy stream': () => driver.cuStreamIsCapturing(0),
  }
  after(() => {
    driver.cuEventDestroy(outside)
    spare.close()
  })

  /** The driver's answer to a call in a capture, and whether the capture survives the call. */
  function answer(threadMode: number, probe: () => void): string {
    using stream = gpu.createStream()
    const before = driver.cuThreadExchangeStreamCaptureMode(threadMode)
    let answered = 'allowed'
    try {
      driver.cuStreamBeginCapture(stream.handle, CU_STREAM_CAPTURE_MODE_GLOBAL)
      try {
        probe()
      } catch (error) {
        if (!(error instanceof CudaError)) throw error
        answered = `${error.call} refused with ${error.result}`
      }
      try {
        driver.cuGraphDestroy(driver.cuStreamEndCapture(stream.handle))
      } catch (error) {
        if (!(error instanceof CudaError)) throw error
        answered += `, the capture ends with ${error.result}`
      }
    } finally {
      driver.cuThreadExchangeStreamCaptureMode(before)
    }
    return answered
  }

  for (const [name, probe] of Object.entries(probes)) {
    it(`${name}: in relaxed mode, which the pool uses`, test => {
      const relaxed = answer(CU_STREAM_CAPTURE_MODE_RELAXED, probe)
      test.diagnostic(`${name}: relaxed ${relaxed}; global ${answer(CU_STREAM_CAPTURE_MODE_GLOBAL, probe)}`)
      assert.equal(relaxed, 'allowed')
    })
  }
})
