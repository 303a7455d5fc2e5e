// One open driver for the contract tests, and objects made with it that are destroyed after each test.

import { closeSync } from 'node:fs'
import { after, afterEach, before, beforeEach, type TestContext } from 'node:test'
import {
  CU_EVENT_DISABLE_TIMING,
  CU_MEM_ALLOCATION_TYPE_PINNED,
  CU_MEM_HANDLE_TYPE_NONE,
  CU_MEM_LOCATION_TYPE_DEVICE,
  CU_STREAM_LEGACY_DEFAULT,
  CU_STREAM_NON_BLOCKING,
} from '../constants.js'
import type { Driver, MemPoolProperties } from '../driver.js'

/** A driver that is opened before each test, with the context of its first device current. */
export class DriverFixture {
  driver!: Driver
  device = 0
  context = 0
  private cleanups: (() => void)[] = []

  /** Registers the hooks of the enclosing suite. `newHost` makes host memory that can be registered. */
  constructor(
    open: () => Driver,
    readonly newHost: (bytes: number) => Uint8Array,
  ) {
    let server: Driver
    // Keeps the primary context alive between the tests: a real driver takes a large part of a second to make one.
    before(() => {
      server = open()
      server.cuInit()
      server.cuDevicePrimaryCtxRetain(server.cuDeviceGet(0))
    })
    after(() => server.cuDevicePrimaryCtxRelease(server.cuDeviceGet(0)))

    beforeEach(() => {
      this.driver = open()
      this.driver.cuInit()
      this.device = this.driver.cuDeviceGet(0)
      this.context = this.driver.cuDevicePrimaryCtxRetain(this.device)
      this.driver.cuCtxSetCurrent(this.context)
    })

    afterEach(() => {
      this.driver.cuCtxSynchronize()
      for (const cleanup of this.cleanups.reverse()) cleanup()
      this.cleanups = []
      this.driver.cuDevicePrimaryCtxRelease(this.device)
    })
  }

  /** Runs `cleanup` after the test, the latest first. */
  readonly later = (cleanup: () => void): void => {
    this.cleanups.push(cleanup)
  }

  readonly allocate = (bytes: number): number => {
    const { driver } = this
    const ptr = driver.cuMemAlloc(bytes)
    this.later(() => driver.cuMemFree(ptr))
    return ptr
  }

  readonly createStream = (flags = CU_STREAM_NON_BLOCKING): number => {
    const { driver } = this
    const stream = driver.cuStreamCreate(flags)
    this.later(() => driver.cuStreamDestroy(stream))
    return stream
  }

  readonly createEvent = (): number => {
    const { driver } = this
    const event = driver.cuEventCreate(CU_EVENT_DISABLE_TIMING)
    this.later(() => driver.cuEventDestroy(event))
    return event
  }

  /** The properties of a pool in the memory of the device. */
  readonly localPool = (): MemPoolProperties => ({
    allocationType: CU_MEM_ALLOCATION_TYPE_PINNED,
    handleTypes: CU_MEM_HANDLE_TYPE_NONE,
    locationType: CU_MEM_LOCATION_TYPE_DEVICE,
    locationId: this.device,
    maxBytes: 0,
  })

  /** A pool in the memory of the device, except for the properties in `different`; destroyed after the test. */
  readonly createPool = (different: Partial<MemPoolProperties> = {}): number => {
    const { driver } = this
    const pool = driver.cuMemPoolCreate({ ...this.localPool(), ...different })
    this.later(() => driver.cuMemPoolDestroy(pool))
    return pool
  }

  /** Memory of a pool. After the test it is freed, and the host waits for the free. */
  readonly allocateFrom = (pool: number, bytes: number, stream: number): number => {
    const { driver } = this
    const ptr = driver.cuMemAllocFromPoolAsync(bytes, pool, stream)
    this.later(() => {
      driver.cuMemFreeAsync(ptr, CU_STREAM_LEGACY_DEFAULT)
      driver.cuCtxSynchronize()
    })
    return ptr
  }

  /** Returns `descriptor`, and closes it after the test. */
  readonly exported = (descriptor: number): number => {
    this.later(() => closeSync(descriptor))
    return descriptor
  }

  readonly register = <T extends ArrayBufferView>(host: T): T => {
    const { driver } = this
    driver.cuMemHostRegister(host, 0)
    this.later(() => driver.cuMemHostUnregister(host))
    return host
  }

  /** Waits for all submitted work, then copies the bytes to the host. */
  readonly read = (ptr: number, bytes: number): Uint8Array => {
    this.driver.cuCtxSynchronize()
    const host = new Uint8Array(bytes)
    this.driver.cuMemcpyDtoH(host, ptr)
    return host
  }

  /** Whether the device lacks the feature of an attribute; then the test is skipped. */
  readonly missing = (test: TestContext, attribute: number, feature: string): boolean => {
    if (this.driver.cuDeviceGetAttribute(attribute, this.device) !== 0) return false
    test.skip(`this device has no ${feature}`)
    return true
  }
}

/** Bytes that repeat after 251, a prime, so that a shift by a power of two changes them. */
export function sequence(bytes: number): Uint8Array {
  const values = new Uint8Array(bytes)
  for (let i = 0; i < bytes; i++) values[i] = (i * 7) % 251
  return values
}
