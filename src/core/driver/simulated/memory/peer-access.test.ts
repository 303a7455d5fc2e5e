import assert from 'node:assert/strict'
import { test } from 'node:test'
import { MiB } from '../../../base/bytes.js'
import { DeviceLostError } from '../../../base/errors.js'
import {
  CU_MEM_ACCESS_FLAGS_PROT_NONE,
  CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
  CU_MEM_LOCATION_TYPE_DEVICE,
  RESULT,
} from '../../constants.js'
import { refuses } from '../../contract/refuses.fixture.js'
import { openSimulated } from '../opened.fixture.js'
import type { SimulatedOptions } from '../options.js'

const GRANULE = 2 * MiB
const { CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_INVALID_DEVICE } = RESULT

function openTwo(options: SimulatedOptions = {}) {
  const driver = openSimulated({ devices: 2, progress: 'eager', ...options })
  const contexts = [0, 1].map(device => driver.cuDevicePrimaryCtxRetain(device))
  const on = (device: number) => driver.cuCtxSetCurrent(contexts[device])
  return { driver, contexts, on }
}

/** Memory of device 0 of each kind, to which device 1 has no access. */
const KINDS = {
  plain: driver => driver.cuMemAlloc(GRANULE),
  mapped: driver => {
    const base = driver.cuMemAddressReserve(GRANULE, 0)
    driver.cuMemMap(base, GRANULE, driver.cuMemCreate(GRANULE, 0, 0))
    driver.cuMemSetAccess(base, GRANULE, [0])
    return base
  },
  pool: driver => driver.cuMemAllocAsync(GRANULE, 0),
} as const satisfies Record<string, (driver: ReturnType<typeof openSimulated>) => number>

test('work on memory of another device ends its context, unless access was given', () => {
  for (const [kind, make] of Object.entries(KINDS)) {
    for (const use of ['fill', 'copy in', 'copy out', 'copy within'] as const) {
      for (const given of [false, true]) {
        const { driver, contexts, on } = openTwo()
        on(0)
        const ptr = make(driver)
        if (given && kind === 'mapped') driver.cuMemSetAccess(ptr, GRANULE, [1])
        if (given && kind === 'pool') {
          const pool = driver.cuDeviceGetMemPool(0)
          driver.cuMemPoolSetAccess(pool, CU_MEM_LOCATION_TYPE_DEVICE, 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
        }
        on(1)
        if (given && kind === 'plain') driver.cuCtxEnablePeerAccess(contexts[0])
        const here = driver.cuMemAlloc(GRANULE)
        const host = new Uint8Array(GRANULE)
        driver.cuMemHostRegister(host, 0)
        driver.holdOperation(0)
        if (use === 'fill') driver.cuMemsetD8Async(ptr, 1, GRANULE, 0)
        if (use === 'copy in') driver.cuMemcpyHtoDAsync(ptr, host, 0)
        if (use === 'copy out') driver.cuMemcpyDtoHAsync(host, ptr, 0)
        if (use === 'copy within') driver.cuMemcpyDtoDAsync(here, ptr, GRANULE, 0)
        if (given) driver.cuCtxSynchronize()
        else {
          refuses(() => driver.cuCtxSynchronize(), 'cuCtxSynchronize', CUDA_ERROR_ILLEGAL_ADDRESS)
          assert.throws(() => driver.cuMemGetInfo(), DeviceLostError)
        }
        on(0)
        driver.cuMemsetD8Async(ptr, 1, GRANULE, 0) // the owner's context still works
        driver.cuCtxSynchronize()
      }
    }
  }
})

test('peer access is one-way, includes later allocations, and ends with either context', () => {
  const { driver, contexts, on } = openTwo()
  driver.cuDevicePrimaryCtxRelease(0) // the retain of openSimulated
  on(1)
  driver.cuCtxEnablePeerAccess(contexts[0])
  on(0)
  const ptr = driver.cuMemAlloc(MiB)
  driver.cuCtxEnablePeerAccess(contexts[1]) // the opposite direction
  on(1)
  driver.cuMemsetD8Async(ptr, 7, MiB, 0)
  driver.cuCtxSynchronize()

  driver.cuDevicePrimaryCtxRelease(1)
  contexts[1] = driver.cuDevicePrimaryCtxRetain(1)
  on(1)
  driver.cuCtxEnablePeerAccess(contexts[0])
  driver.cuDevicePrimaryCtxRelease(0)
  contexts[0] = driver.cuDevicePrimaryCtxRetain(0)
  on(0)
  const fresh = driver.cuMemAlloc(MiB)
  on(1)
  refuses(() => driver.cuMemcpyDtoH(new Uint8Array(1), fresh), 'cuMemcpyDtoH', CUDA_ERROR_ILLEGAL_ADDRESS)
})

test('one device can lose access to a mapping', () => {
  const { driver, on } = openTwo()
  on(0)
  const base = KINDS.mapped(driver)
  const set = (flags: number) => driver.cuMemSetAccess(base, GRANULE, [1], flags)
  set(CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
  refuses(() => set(4), 'cuMemSetAccess', RESULT.CUDA_ERROR_INVALID_VALUE)
  on(1)
  driver.cuMemsetD8Async(base, 1, GRANULE, 0)
  driver.cuCtxSynchronize()
  set(CU_MEM_ACCESS_FLAGS_PROT_NONE)
  on(0)
  driver.cuMemcpyDtoH(new Uint8Array(1), base)
  on(1)
  refuses(() => driver.cuMemcpyDtoH(new Uint8Array(1), base), 'cuMemcpyDtoH', CUDA_ERROR_ILLEGAL_ADDRESS)
})

test('peer access is refused to the same context, without context, twice, and between unconnected devices', () => {
  const { driver, contexts, on } = openTwo()
  on(0)
  const enable = (context: number) => () => driver.cuCtxEnablePeerAccess(context)
  assert.deepEqual([driver.cuDeviceCanAccessPeer(0, 1), driver.cuDeviceCanAccessPeer(0, 0)], [true, false])
  refuses(() => driver.cuDeviceCanAccessPeer(0, 2), 'cuDeviceCanAccessPeer', CUDA_ERROR_INVALID_DEVICE)
  refuses(enable(contexts[0]), 'cuCtxEnablePeerAccess', CUDA_ERROR_INVALID_CONTEXT)
  refuses(enable(77), 'cuCtxEnablePeerAccess', CUDA_ERROR_INVALID_CONTEXT)
  driver.cuCtxEnablePeerAccess(contexts[1])
  refuses(enable(contexts[1]), 'cuCtxEnablePeerAccess', RESULT.CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
})

test('unconnected devices copy by cuMemcpyPeerAsync only', () => {
  const { driver, contexts, on } = openTwo({ peerAccess: false })
  on(1)
  const there = driver.cuMemAlloc(MiB)
  on(0)
  assert.equal(driver.cuDeviceCanAccessPeer(0, 1), false)
  const enable = () => driver.cuCtxEnablePeerAccess(contexts[1])
  refuses(enable, 'cuCtxEnablePeerAccess', RESULT.CUDA_ERROR_PEER_ACCESS_UNSUPPORTED)
  const base = KINDS.mapped(driver)
  refuses(() => driver.cuMemSetAccess(base, GRANULE, [0, 1]), 'cuMemSetAccess', CUDA_ERROR_INVALID_DEVICE)
  const pool = driver.cuDeviceGetMemPool(0)
  const grant = () =>
    driver.cuMemPoolSetAccess(pool, CU_MEM_LOCATION_TYPE_DEVICE, 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
  refuses(grant, 'cuMemPoolSetAccess', CUDA_ERROR_INVALID_DEVICE)
  assert.equal(driver.cuMemPoolGetAccess(pool, CU_MEM_LOCATION_TYPE_DEVICE, 1), CU_MEM_ACCESS_FLAGS_PROT_NONE)
  driver.cuMemsetD8Async(base, 5, GRANULE, 0)
  driver.cuMemcpyPeerAsync(there, contexts[1], base, contexts[0], MiB, 0)
  driver.cuCtxSynchronize()
  on(1)
  const host = new Uint8Array(1)
  driver.cuMemcpyDtoH(host, there + MiB - 1)
  assert.equal(host[0], 5)
})

test('a copy between devices runs in stream order, and its contexts must own its memory', () => {
  const { driver, contexts, on } = openTwo()
  on(1)
  const there = driver.cuMemAlloc(MiB)
  driver.cuMemsetD8Async(there, 1, MiB, 0)
  on(0)
  const here = driver.cuMemAlloc(MiB)
  const ticket = driver.holdOperation(0)
  driver.cuMemcpyPeerAsync(here, contexts[0], there, contexts[1], MiB, 0)
  on(1)
  driver.cuMemsetD8Async(there, 2, MiB, 0)
  driver.cuCtxSynchronize()
  on(0)
  driver.releaseThrough(0, ticket)
  const host = new Uint8Array(1)
  driver.cuMemcpyDtoH(host, here)
  assert.equal(host[0], 2)

  const copy = (target: number, to: number, source: number, from: number, bytes = MiB) => {
    driver.cuMemcpyPeerAsync(target, to, source, from, bytes, 0)
  }
  const { CUDA_ERROR_INVALID_VALUE } = RESULT
  refuses(() => copy(here, 77, there, contexts[1]), 'cuMemcpyPeerAsync', CUDA_ERROR_INVALID_CONTEXT)
  refuses(() => copy(here, contexts[0], there, 77), 'cuMemcpyPeerAsync', CUDA_ERROR_INVALID_CONTEXT)
  refuses(() => copy(here, contexts[0], there, contexts[1], MiB + 1), 'cuMemcpyPeerAsync', CUDA_ERROR_INVALID_VALUE)
  copy(here, contexts[0], there, contexts[0])
  refuses(() => driver.cuCtxSynchronize(), 'cuCtxSynchronize', CUDA_ERROR_ILLEGAL_ADDRESS)
})

test('no device gets access if one of them cannot', () => {
  const { driver, on } = openTwo({ peerAccess: false })
  on(0)
  const base = driver.cuMemAddressReserve(GRANULE, 0)
  driver.cuMemMap(base, GRANULE, driver.cuMemCreate(GRANULE, 0, 0))
  refuses(() => driver.cuMemSetAccess(base, GRANULE, [0, 1]), 'cuMemSetAccess', CUDA_ERROR_INVALID_DEVICE)
  refuses(() => driver.cuMemSetAccess(base, GRANULE, [0, 2]), 'cuMemSetAccess', CUDA_ERROR_INVALID_DEVICE)
  refuses(() => driver.cuMemSetAccess(base, GRANULE, []), 'cuMemSetAccess', RESULT.CUDA_ERROR_INVALID_VALUE)
  driver.cuMemsetD8Async(base, 1, GRANULE, 0)
  refuses(() => driver.cuCtxSynchronize(), 'cuCtxSynchronize', CUDA_ERROR_ILLEGAL_ADDRESS)
})
