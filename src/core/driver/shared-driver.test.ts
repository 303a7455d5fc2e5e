import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { runInNewContext } from 'node:vm'
import { Worker } from 'node:worker_threads'
import { CudaError, DeviceLostError } from '../base/errors.js'
import { markOfThread } from '../threads/os-thread.js'
import {
  CU_STREAM_CAPTURE_MODE_GLOBAL,
  CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
  CU_STREAM_NON_BLOCKING,
  CU_STREAM_PER_THREAD,
  RESULT,
} from './constants.js'
import { refuses } from './contract/refuses.fixture.js'
import type { Driver } from './driver.js'
import { inThread, OwnerThread } from './driver-threads.worker.js'
import { serveWaiting } from './serve-waiting.js'
import { connectDriver, type SharedDriver, shareDriver } from './shared-driver.js'
import { openSimulated } from './simulated/opened.fixture.js'

const eager = { progress: 'eager' } as const

test('a thread has one object for a driver: the original where it was opened', () => {
  const driver = openSimulated()
  const shared = shareDriver(driver)
  assert.equal(shareDriver(driver), shared)
  assert.equal(connectDriver(structuredClone(shared)), driver)
  const elsewhere = new OwnerThread().open()
  const remote = connectDriver(elsewhere)
  assert.equal(connectDriver(structuredClone(elsewhere)), remote)
  assert.deepEqual(shareDriver(remote), elsewhere)
})

test('wrong descriptions and foreign drivers are refused', () => {
  const shared = shareDriver(openSimulated())
  const foreign = { ...shared, process: shared.process + 1 }
  assert.throws(() => connectDriver(foreign), { name: 'PoolError', message: /another process/ })
  for (const wrong of [undefined, null, 1, {}, { ...shared, kind: 'own' }, { ...shared, name: 7 }]) {
    assert.throws(() => connectDriver(wrong as SharedDriver), {
      name: 'TypeError',
      message: /must come from shareDriver/,
    })
  }
  const own = { simulated: true, cuInit: () => {} }
  assert.throws(() => shareDriver(own as never), { name: 'PoolError', message: /a driver of one's own/ })
})

test('the answer to an interrupted call is not taken for the answer to the next call', () => {
  const remote = connectDriver(new OwnerThread().open())
  remote.cuInit()
  const devices = remote.cuDeviceGetCount()
  const endless = () => {
    for (;;) remote.cuDriverGetVersion()
  }
  for (let cuts = 0; cuts < 20; cuts++) {
    assert.throws(() => runInNewContext('call()', { call: endless }, { timeout: 2 }), /timed out/)
    assert.equal(remote.cuDeviceGetCount(), devices)
  }
})

test('each thread has its own context, default stream and capture mode', async () => {
  const driver = openSimulated(eager)
  const shared = shareDriver(driver)
  assert.equal(await inThread(shared, 'contextOfItsOwn'), RESULT.CUDA_ERROR_INVALID_CONTEXT)
  driver.cuMemAlloc(512)
  assert.notEqual(await inThread(shared, 'threadStream'), driver.cuStreamGetId(CU_STREAM_PER_THREAD))
  driver.cuDevicePrimaryCtxRelease(0) // the retain of the other thread is left
  await inThread(shared, 'releaseContext')
  refuses(() => driver.cuMemAlloc(512), 'cuMemAlloc', RESULT.CUDA_ERROR_INVALID_CONTEXT)
})

test('a capture forbids unsafe calls of its thread, and of other threads only if both are in global mode', async () => {
  for (const mode of [CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_GLOBAL]) {
    const driver = openSimulated(eager)
    const stream = driver.cuStreamCreate(CU_STREAM_NON_BLOCKING)
    driver.cuStreamBeginCapture(stream, mode)
    const worked = inThread(shareDriver(driver), 'work', 1, 1)
    if (mode === CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) {
      assert.equal(await worked, 0)
      refuses(() => driver.cuMemAlloc(512), 'cuMemAlloc', RESULT.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
    } else await assert.rejects(worked, { call: 'cuMemAlloc', result: RESULT.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED })
  }
})

test('shared memory is the same in each thread, registered and unregistered by any of them', async () => {
  const driver = openSimulated(eager)
  const shared = shareDriver(driver)
  const [memory, other] = [new SharedArrayBuffer(4096), new SharedArrayBuffer(4096)]
  const host = new Uint8Array(memory)
  const stream = driver.cuStreamCreate(CU_STREAM_NON_BLOCKING)
  const source = driver.cuMemAlloc(512)
  driver.cuMemsetD8Async(source, 9, 512, 0)
  const ticket = driver.holdOperation(stream)
  await inThread(shared, 'registerAndRead', memory, source, stream)
  const again = () => driver.cuMemHostRegister(host.subarray(1024, 1025), 0)
  refuses(again, 'cuMemHostRegister', RESULT.CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED)
  driver.cuMemHostRegister(new Uint8Array(other), 0)
  assert.equal(await inThread(shared, 'hostAddress', memory), driver.hostAddress(host) + 16)
  assert.notEqual(driver.hostAddress(host), driver.hostAddress(new Uint8Array(other)))
  host.fill(5)
  driver.releaseThrough(stream, ticket)
  assert.deepEqual([host[1023], host[1024], host[1535], host[1536]], [5, 9, 9, 5])
  driver.cuMemcpyDtoH(host.subarray(0, 512), source)
  assert.deepEqual([host[0], host[511]], [5, 5])
  await inThread(shared, 'unregister', memory)
  driver.cuMemHostRegister(host, 0)
})

test('calls of several threads at once are not mixed up', async () => {
  const driver = openSimulated()
  const shared = shareDriver(driver)
  const results = await Promise.all([1, 2, 3].map(value => inThread(shared, 'work', value, 200)))
  assert.deepEqual(results, [0, 0, 0])
  assert.equal(driver.calls.get('cuMemAlloc'), 600)
  assert.equal(driver.usedBytes(), 0)
})

const flag = () => new Int32Array(new SharedArrayBuffer(4))

/** A thread that shares a driver, then calls a driver of this thread while `done` is 0, at most `calls` times. */
function callFromThread(driver: Driver, done: Int32Array, calls: number): Worker {
  const code = `
    const { parentPort, workerData } = require('node:worker_threads')
    const { shared, done, calls, threads, simulated } = workerData
    Promise.all([import(threads), import(simulated)]).then(([{ connectDriver, shareDriver }, { SimulatedDriver }]) => {
      parentPort.postMessage(shareDriver(new SimulatedDriver()))
      const driver = connectDriver(shared)
      for (let call = 0; call < calls && Atomics.load(done, 0) === 0; call++) driver.cuDriverGetVersion()
      Atomics.store(done, 0, 1)
    })`
  const files = ['./shared-driver.js', './simulated/simulated-driver.js']
  const [threads, simulated] = files.map(file => new URL(file, import.meta.url).href)
  return new Worker(code, { eval: true, workerData: { shared: shareDriver(driver), done, calls, threads, simulated } })
}

test('a waiting thread answers other threads, each call once', () => {
  const driver = openSimulated()
  const done = flag()
  callFromThread(driver, done, 100)
  let answers = 0
  while (Atomics.load(done, 0) === 0) {
    Atomics.wait(done, 0, 0, 1)
    answers += serveWaiting()
  }
  assert.equal(answers, 100)
  assert.equal(driver.calls.get('cuDriverGetVersion'), 100)
})

test('two threads that call each other do not deadlock', async () => {
  const done = flag()
  const worker = callFromThread(openSimulated(), done, Infinity)
  const [shared] = (await once(worker, 'message')) as [SharedDriver]
  const remote = connectDriver(shared)
  for (let call = 0; call < 20; call++) assert.ok(remote.cuDriverGetVersion() > 0)
  Atomics.store(done, 0, 1)
})

const skip = markOfThread() === '' && 'this system does not tell which threads have ended'

test('a device is lost when the thread of its driver has ended', { skip }, async () => {
  const owner = new OwnerThread()
  const [shared, unseen] = [owner.open(), owner.open()]
  const driver = connectDriver(shared)
  driver.cuInit()
  await owner.worker.terminate()
  for (let round = 0; round < 2; round++) {
    assert.throws(
      () => driver.cuMemAlloc(512),
      (error: unknown) => {
        assert.ok(error instanceof DeviceLostError && error.first instanceof CudaError)
        assert.deepEqual([error.first.call, error.first.result], ['cuMemAlloc', RESULT.CUDA_ERROR_DEINITIALIZED])
        assert.match(error.message, /the thread that opened the simulated driver has ended: keep it/)
        return true
      },
    )
  }
  assert.throws(() => connectDriver(unseen), { name: 'PoolError', message: /connectDriver: the thread .* has ended/ })
})

test('a shared driver does not keep its process alive', () => {
  const program = fileURLToPath(new URL('./shared-driver-program.fixture.js', import.meta.url))
  assert.equal(execFileSync(process.execPath, [program], { timeout: 20_000, encoding: 'utf8' }), 'done\n')
})
