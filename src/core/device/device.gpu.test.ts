// A GPU through the public API: streams made elsewhere, closing with everything open, and a device after a kernel has
// faulted. Fails without a GPU.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { describe, it } from 'node:test'
import { fileURLToPath } from 'node:url'
import koffi from 'koffi'
import { outcome } from '../../../test/outcome.fixture.js'
import { KiB, MiB } from '../base/bytes.js'
import { CU_STREAM_PER_THREAD } from '../driver/constants.js'
import { openDevice, openDevices } from './open.js'

const FAULT_PTX = `
.version 6.3
.target sm_70
.address_size 64
.visible .entry fault()
{
  .reg .b64 %address;
  mov.u64 %address, 16;
  st.global.u32 [%address], 1;
  ret;
}
`

const ONE = { grid: 1, block: 1 }

async function outcomes(calls: Readonly<Record<string, () => unknown>>): Promise<Record<string, unknown>> {
  const results: Record<string, unknown> = {}
  for (const [name, call] of Object.entries(calls)) results[name] = await outcome(call)
  return results
}

/** A device with everything open, and a kernel that will fault. */
function doomed() {
  const device = openDevice(0)
  const pool = device.createPool()
  const plain = device.createPlainPool()
  const stream = device.createStream()
  const event = device.createEvent()
  const module = device.loadModule(FAULT_PTX)
  const buffer = pool.allocate(1 * MiB, stream)
  const other = pool.allocate(1 * MiB, stream)
  const pending = pool.allocate(512 * MiB, stream)
  const plainBuffer = plain.allocate(1 * KiB, stream)
  buffer.fill(1)
  other.fill(2)
  device.synchronize()
  event.record(stream)
  const kernel = module.kernel('fault')
  kernel.launch({ ...ONE, stream })
  pending.free()
  return { device, pool, plain, stream, event, module, kernel, buffer, other, plainBuffer }
}

/** Runs in a process of its own, whose context it loses; prints the outcome of every call. */
async function loseDevice(): Promise<void> {
  const { device, pool, plain, stream, event, module, kernel, buffer, other, plainBuffer } = doomed()
  const bytes = new Uint8Array(16)
  const first = await outcome(() => buffer.read())
  const refused = await outcomes({
    allocate: () => pool.allocate(256 * MiB),
    tryAllocate: () => pool.tryAllocate(256 * MiB),
    allocatePlain: () => plain.allocate(1),
    freePlain: () => plainBuffer.free(),
    processDeferred: () => pool.processDeferred(),
    trimTo: () => pool.trimTo(0),
    write: () => buffer.write(bytes),
    writeSync: () => buffer.writeSync(bytes),
    fill: () => buffer.fill(0),
    read: () => buffer.read(),
    readSync: () => buffer.readSync(),
    copyFrom: () => buffer.copyFrom(other),
    copyFromSync: () => buffer.copyFromSync(other),
    query: () => stream.query(),
    synchronize: () => stream.synchronize(),
    finished: () => stream.finished(),
    wait: () => stream.wait(event),
    record: () => event.record(stream),
    queryEvent: () => event.query(),
    launch: () => kernel.launch({ ...ONE, stream }),
    launchCooperative: () => kernel.launch({ ...ONE, stream, cooperative: true }),
    occupancy: () => kernel.occupancy(32),
    suggestShape: () => kernel.suggestShape(),
    resources: () => kernel.resources(),
    kernel: () => module.kernel('fault'),
    createStream: () => device.createStream(),
    createEvent: () => device.createEvent(),
    createPool: () => device.createPool(),
    loadModule: () => device.loadModule(FAULT_PTX),
    memoryInfo: () => device.memoryInfo(),
    synchronizeDevice: () => device.synchronize(),
  })
  const served = await outcomes({
    free: () => buffer.free(),
    allocateCached: () => pool.allocate(1 * MiB, stream),
    stats: () => pool.stats(),
    snapshot: () => pool.snapshot(),
    check: () => pool.check(),
  })
  const closedParts = await outcomes({
    stream: () => stream.close(),
    event: () => event.close(),
    module: () => module.close(),
    pool: () => pool.close(),
    plain: () => plain.close(),
  })
  const closedDevice = await outcomes({
    close: () => device.close(),
    closeAgain: () => device.close(),
    dispose: () => other[Symbol.dispose](),
  })
  console.log(JSON.stringify({ first, refused, served, closedParts, closedDevice }))
}

/** Runs a task of this file in a process of its own; returns its JSON output. */
function inProcess(task: string) {
  const child = spawnSync(process.execPath, [fileURLToPath(import.meta.url), task], { encoding: 'utf8' })
  assert.deepEqual([child.status, child.signal, child.stderr], [0, null, ''])
  return JSON.parse(child.stdout)
}

function tests(): void {
  describe('a GPU through the public API', () => {
    it("streams made elsewhere, and the driver's two default streams, can be adopted", async () => {
      using device = openDevice(0)
      using pool = device.createPool()
      const handle = device.driver.cuStreamCreate(0)
      const adopted = device.adoptStream(handle)
      assert.equal(device.adoptStream(handle), adopted)
      assert.equal(device.adoptStream(0), device.defaultStream)
      const perThread = device.adoptStream(CU_STREAM_PER_THREAD)
      assert.equal(device.adoptStream(CU_STREAM_PER_THREAD), perThread)
      for (const [index, stream] of [adopted, device.defaultStream, perThread].entries()) {
        using buffer = pool.allocate(64 * KiB, stream)
        buffer.fill(index)
        assert.ok((await buffer.read()).every(byte => byte === index))
        await stream.finished()
        assert.equal(stream.query(), true)
      }
      adopted.close()
      assert.equal(device.driver.cuStreamQuery(handle), true, 'it is left to its owner')
      const again = device.adoptStream(handle)
      assert.notEqual(again, adopted)
      again.close()
      device.driver.cuStreamDestroy(handle)
    })

    it('a stream of another context is refused', () => {
      using device = openDevice(0)
      const library = koffi.load(device.driver.origin)
      const created = [0]
      const create = library.func('int cuCtxCreate_v2(_Out_ uint64_t *context, unsigned int flags, int device)')
      assert.equal(create(created, 0, 0), 0) // and makes it current
      const handle = device.driver.cuStreamCreate(0)
      device.driver.cuCtxSetCurrent(device.context.handle)
      const refused = { name: 'PoolError', message: /another device or context/ }
      assert.throws(() => device.adoptStream(handle), refused)
      device.synchronize()
      assert.equal(library.func('int cuCtxDestroy_v2(uint64_t context)')(created[0]), 0)
    })

    it('devices open side by side, on one driver or on several', t => {
      const together = openDevices()
      const apart = together.map(device => openDevice(device.ordinal))
      const open = [...together, ...apart]
      const buffers = open.map(device => device.createPool().allocate(1 * MiB))
      for (const [index, buffer] of buffers.entries()) buffer.fill(index)
      for (const [index, buffer] of buffers.entries()) {
        assert.deepEqual([buffer.device, buffer.readSync(5, 1)[0]], [open[index].ordinal, index])
        const from = (index + 1) % buffers.length
        buffer.copyFromSync(buffers[from], 0, 0, 1)
        assert.equal(buffer.readSync(0, 1)[0], from === 0 ? 1 : from)
      }
      if (together.length === 1) t.diagnostic('one GPU: copies between two were not tried')
      for (const device of open) device.close()
    })

    it('a device closes with everything open and work pending, and can be opened again', () => {
      for (let round = 0; round < 2; round++) {
        const device = openDevice(0)
        const stream = device.createStream()
        const pools = [device.createPool(), device.createPool({ backing: 'segments' }), device.createPlainPool()]
        const buffers = pools.map(pool => pool.allocate(64 * MiB, stream))
        for (const buffer of buffers) buffer.fill(round)
        device.createEvent().record(stream)
        device.adoptStream(CU_STREAM_PER_THREAD)
        device.close()
        device.close()
        assert.ok(buffers.every(buffer => buffer.freed))
        assert.equal(stream.closed, true)
        assert.throws(() => device.createStream(), { name: 'PoolError', message: /device is closed/ })
      }
    })
  })

  describe('a GPU after a kernel fault', () => {
    it('every driver call names the first fault, other calls work, and close does not throw', () => {
      const { first, refused, served, closedParts, closedDevice } = inProcess('lose-device')
      assert.equal(first[0], 'CudaError')
      assert.equal(first[2], 'CUDA_ERROR_ILLEGAL_ADDRESS')
      const lost = ['DeviceLostError', first[1], first[2]]
      for (const [call, result] of Object.entries(refused)) assert.deepEqual(result, lost, call)
      for (const [call, result] of Object.entries(served)) assert.equal(result, null, call)
      for (const [part, result] of Object.entries(closedParts)) {
        if (result !== null) assert.deepEqual(result, lost, part)
      }
      assert.deepEqual(closedDevice, { close: null, closeAgain: null, dispose: null })
    })

    it('a process exits normally with everything open', () => {
      assert.deepEqual(inProcess('leave-lost-device'), [
        'CudaError',
        'cuStreamSynchronize',
        'CUDA_ERROR_ILLEGAL_ADDRESS',
      ])
    })
  })
}

const task = process.argv[2]
if (task === 'lose-device') await loseDevice()
else if (task === 'leave-lost-device') {
  const { stream } = doomed()
  console.log(JSON.stringify(await outcome(() => stream.synchronize())))
} else tests()
