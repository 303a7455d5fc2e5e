// The contract tests: both drivers pass them, the simulated driver and libcuda on a GPU. They test behaviour that CUDA
// documents or that was measured on a real driver, one file a chapter in contract/. Behaviour that kills the context, or
// that is undefined on a real driver, is tested with the simulated driver alone.

<<<<<<< HEAD
import assert from 'node:assert/strict'
import { closeSync } from 'node:fs'
import { after, afterEach, before, beforeEach, describe, it, type TestContext } from 'node:test'
import { GiB, KiB, MiB, TiB } from '../base/bytes.js'
import { CudaError } from '../base/errors.js'
import {
  CU_EVENT_DISABLE_TIMING,
  CU_MEM_ACCESS_FLAGS_PROT_NONE,
  CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
  CU_MEM_ALLOCATION_TYPE_MANAGED,
  CU_MEM_ALLOCATION_TYPE_PINNED,
  CU_MEM_ATTACH_GLOBAL,
  CU_MEM_HANDLE_TYPE_NONE,
  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
  CU_MEM_LOCATION_TYPE_DEVICE,
  CU_MEM_LOCATION_TYPE_HOST,
  CU_MEM_LOCATION_TYPE_HOST_NUMA,
  CU_MEMHOSTREGISTER_DEVICEMAP,
  CU_MEMHOSTREGISTER_PORTABLE,
  CU_STREAM_CAPTURE_MODE_GLOBAL,
  CU_STREAM_CAPTURE_MODE_RELAXED,
  CU_STREAM_LEGACY_DEFAULT,
  CU_STREAM_NON_BLOCKING,
  DEVICE_ATTRIBUTE,
  FUNCTION_ATTRIBUTE,
  POOL_ATTRIBUTE,
  RESULT,
} from './constants.js'
import type { Driver, KernelArguments, LaunchShape, MemPoolProperties } from './driver.js'
import { STORE_PTX } from './store-kernel.fixture.js'

const {
  CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
  CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z,
  CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y,
  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK,
  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
  CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH,
  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
  CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY,
  CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
  CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
  CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED,
  CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES,
  CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID,
  CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED,
} = DEVICE_ATTRIBUTE
const {
  CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES,
  CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
  CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
  CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
  CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
  CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH,
  CU_MEMPOOL_ATTR_USED_MEM_CURRENT,
  CU_MEMPOOL_ATTR_USED_MEM_HIGH,
} = POOL_ATTRIBUTE

const REUSE_ATTRIBUTES = [
  CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES,
  CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
  CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
]
=======
import { describe } from 'node:test'
import { deviceSuite } from './contract/devices.suite.js'
import { DriverFixture } from './contract/fixture.suite.js'
import { graphSuite } from './contract/graphs.suite.js'
import { kernelSuite } from './contract/kernels.suite.js'
import { memorySuite } from './contract/memory.suite.js'
import { poolSuite } from './contract/pools.suite.js'
import { streamSuite } from './contract/streams.suite.js'
import { virtualMemorySuite } from './contract/virtual-memory.suite.js'
import type { Driver } from './driver.js'
>>>>>>> h-driver

/**
 * Runs the contract tests. `open` is called once for each test. `newHost` makes host memory that is to be registered; it
 * must be shared memory if the driver belongs to another thread.
 */
export function driverSuite(
  name: string,
  open: () => Driver,
  newHost = (bytes: number): Uint8Array => new Uint8Array(bytes),
): void {
  describe(`driver contract: ${name}`, () => {
    const fixture = new DriverFixture(open, newHost)
    deviceSuite(fixture)
    memorySuite(fixture)
    streamSuite(fixture)
    kernelSuite(fixture)
    graphSuite(fixture)
    virtualMemorySuite(fixture)
    poolSuite(fixture)
  })
}
