// GPU memory shared by a file descriptor: within this process, and with another process, which reads it, writes it
// and releases it first, as the driver demands. Fails without a GPU.

import assert from 'node:assert/strict'
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, mkdtempSync, openSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { CudaError } from '../../base/errors.js'
import { receiveDescriptor, sendDescriptor } from '../../libraries/descriptors.fixture.js'
import { closeDescriptor } from '../../libraries/descriptors.js'
import {
  CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
  CU_MEM_HANDLE_TYPE_NONE,
  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
  CU_MEM_LOCATION_TYPE_DEVICE,
  DEVICE_ATTRIBUTE,
} from '../constants.js'
import { isFilled, MiB, openFirst, PINNED, refused } from './gpu.fixture.js'
import type { NativeDriver } from './native-driver.js'

const FILE = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
const LONG = { timeoutMs: 30_000 }
const BYTES = MiB

/** The report of the other process: whether the memory held `from` before it wrote `to`. */
function rewrite(driver: NativeDriver, ptr: number, from: number, to: number): boolean {
  const found = isFilled(driver, ptr, BYTES, from)
  driver.cuMemsetD8Async(ptr, to, BYTES, 0)
  driver.cuCtxSynchronize()
  return found
}

/** Maps physical memory, runs `work` on it, and unmaps it; the handle stays. */
function withMapped<T>(driver: NativeDriver, handle: number, work: (ptr: number) => T): T {
  const granule = driver.cuMemGetAllocationGranularity(0)
  const ptr = driver.cuMemAddressReserve(granule, 0)
  driver.cuMemMap(ptr, granule, handle)
  driver.cuMemSetAccess(ptr, granule, [0])
  const result = work(ptr)
  driver.cuMemUnmap(ptr, granule)
  driver.cuMemAddressFree(ptr, granule)
  return result
}

/** Imports a pool and one of its blocks, runs `work` on the block, and frees it. */
function withImported<T>(driver: NativeDriver, descriptor: number, exported: Uint8Array, work: (ptr: number) => T): T {
  const pool = driver.cuMemPoolImportFromShareableHandle(descriptor, FILE)
  if (driver.cuMemPoolGetAccess(pool, CU_MEM_LOCATION_TYPE_DEVICE, 0) !== CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
    driver.cuMemPoolSetAccess(pool, CU_MEM_LOCATION_TYPE_DEVICE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
  }
  const ptr = driver.cuMemPoolImportPointer(pool, exported)
  const result = work(ptr)
  driver.cuMemFreeAsync(ptr, 0)
  driver.cuStreamSynchronize(0)
  driver.cuMemPoolDestroy(pool)
  return result
}

/** The other process. */
async function useShared(kind: string, path: string): Promise<void> {
  const driver = openFirst()
  const { descriptor, message } = await receiveDescriptor(path, LONG)
  if (kind === 'pool') process.send!(withImported(driver, descriptor, message, ptr => rewrite(driver, ptr, 0x11, 0x22)))
  else {
    const handle = driver.cuMemImportFromShareableHandle(descriptor, FILE)
    process.send!(withMapped(driver, handle, ptr => rewrite(driver, ptr, 0x11, 0x22)))
    driver.cuMemRelease(handle)
  }
  closeDescriptor(descriptor)
  driver.cuDevicePrimaryCtxRelease(0)
}

const [kind, path] = process.argv.slice(2)
if (kind !== undefined && path !== undefined) await useShared(kind, path)
else {
  describe('sharing GPU memory through a descriptor', () => {
    const folder = mkdtempSync(join(tmpdir(), 'gpu-memory-'))
    let driver: NativeDriver
    let noHandles: string | false
    let noPools: string | false
    before(() => {
      driver = openFirst()
      const {
        CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED: handles,
        CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES: pools,
      } = DEVICE_ATTRIBUTE
      noHandles = driver.cuDeviceGetAttribute(handles, 0) !== 1 && 'this device exports no memory as a descriptor'
      noPools = (driver.cuDeviceGetAttribute(pools, 0) & FILE) === 0 && 'this device exports no pools as a descriptor'
    })
    after(() => {
      rmSync(folder, { recursive: true })
      driver?.cuDevicePrimaryCtxRelease(0)
    })

    /** Passes a descriptor to another process, and returns the report of that process. */
    const share = async (what: string, descriptor: number, message?: Uint8Array) => {
      const socket = join(folder, 'socket')
      const child = fork(fileURLToPath(import.meta.url), [what, socket])
      let found: unknown
      child.on('message', answer => {
        found = answer
      })
      const ended = Promise.all([once(child, 'exit'), once(child, 'disconnect')])
      await sendDescriptor(socket, descriptor, message, LONG)
      const [[code]] = await ended
      assert.equal(code, 0, 'the other process should end well')
      return found
    }

    /** Runs `work` with a pool, one of its blocks filled with 0x11, and a descriptor of the pool. */
    const withPool = async (work: (ptr: number, descriptor: number) => unknown) => {
      const pool = driver.cuMemPoolCreate({ ...PINNED, handleTypes: FILE })
      const ptr = driver.cuMemAllocFromPoolAsync(BYTES, pool, 0)
      driver.cuMemsetD8Async(ptr, 0x11, BYTES, 0)
      driver.cuStreamSynchronize(0)
      const descriptor = driver.cuMemPoolExportToShareableHandle(pool, FILE)
      await work(ptr, descriptor)
      closeDescriptor(descriptor)
      driver.cuMemFreeAsync(ptr, 0)
      driver.cuStreamSynchronize(0)
      driver.cuMemPoolDestroy(pool)
    }

    test('memory is shared within one process', t => {
      if (noHandles) return t.skip(noHandles)
      const handle = driver.cuMemCreate(driver.cuMemGetAllocationGranularity(0), 0, FILE)
      const descriptor = driver.cuMemExportToShareableHandle(handle, FILE)
      const second = driver.cuMemImportFromShareableHandle(descriptor, FILE)
      closeDescriptor(descriptor)
      withMapped(driver, handle, ptr => {
        driver.cuMemsetD8Async(ptr, 0x11, BYTES, 0)
        assert.ok(withMapped(driver, second, alias => rewrite(driver, alias, 0x11, 0x22)))
        assert.ok(isFilled(driver, ptr, BYTES, 0x22))
      })
      driver.cuMemRelease(handle)
      assert.ok(
        withMapped(driver, second, ptr => isFilled(driver, ptr, BYTES, 0x22)),
        'the last handle keeps the memory',
      )
      driver.cuMemRelease(second)
    })

    test('memory is shared with another process', async t => {
      if (noHandles) return t.skip(noHandles)
      const handle = driver.cuMemCreate(driver.cuMemGetAllocationGranularity(0), 0, FILE)
      withMapped(driver, handle, ptr => driver.cuMemsetD8Async(ptr, 0x11, BYTES, 0))
      const descriptor = driver.cuMemExportToShareableHandle(handle, FILE)
      assert.equal(await share('handle', descriptor), true, 'the other process should see what was written here')
      closeDescriptor(descriptor)
      assert.ok(withMapped(driver, handle, ptr => isFilled(driver, ptr, BYTES, 0x22)))
      driver.cuMemRelease(handle)
    })

    test('a pool is shared within one process, unless the driver refuses', async t => {
      if (noPools) return t.skip(noPools)
      await withPool((ptr, descriptor) => {
        try {
          const found = withImported(driver, descriptor, driver.cuMemPoolExportPointer(ptr), alias =>
            rewrite(driver, alias, 0x11, 0x22),
          )
          assert.ok(found && isFilled(driver, ptr, BYTES, 0x22))
        } catch (error) {
          // CUDA does not promise that a process can import its own pools.
          if (!(error instanceof CudaError) || !error.call.startsWith('cuMemPoolImport')) throw error
          t.diagnostic(error.message)
        }
      })
    })

    test('a pool is shared with another process', async t => {
      if (noPools) return t.skip(noPools)
      await withPool(async (ptr, descriptor) => {
        const exported = driver.cuMemPoolExportPointer(ptr)
        assert.equal(exported.length, 64)
        assert.equal(
          await share('pool', descriptor, exported),
          true,
          'the other process should see what was written here',
        )
        assert.ok(isFilled(driver, ptr, BYTES, 0x22))
      })
    })

    test('memory made without handle types, and other files, are refused', () => {
      const handle = driver.cuMemCreate(driver.cuMemGetAllocationGranularity(0), 0, CU_MEM_HANDLE_TYPE_NONE)
      const pool = driver.cuMemPoolCreate(PINNED)
      const file = openSync('/dev/null', 'r')
      for (const [call, work] of [
        ['cuMemExportToShareableHandle', () => driver.cuMemExportToShareableHandle(handle, FILE)],
        ['cuMemPoolExportToShareableHandle', () => driver.cuMemPoolExportToShareableHandle(pool, FILE)],
        ['cuMemImportFromShareableHandle', () => driver.cuMemImportFromShareableHandle(file, FILE)],
        ['cuMemPoolImportFromShareableHandle', () => driver.cuMemPoolImportFromShareableHandle(file, FILE)],
      ] as const) {
        assert.throws(work, refused(call), call)
      }
      closeSync(file)
      driver.cuMemPoolDestroy(pool)
      driver.cuMemRelease(handle)
    })
  })
}
