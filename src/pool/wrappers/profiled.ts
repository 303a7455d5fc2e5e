// Shows a profiler what a pool does. Every call is a range, so that the driver calls below it can be seen in it; what was
// handed out is a mark in that range, since its address is known only then. Ranges have few different texts, because tools
// sum up by text; what differs from call to call is their payload. An allocation and its free take some 1.3 µs longer even
// when no tool listens: wrap a pool only in a run that is to be looked at.

import { checkByteCount, describe, formatBytes } from '../../base/bytes.js'
import { OutOfMemoryError } from '../../base/errors.js'
import { checkOptionNames } from '../../base/option-names.js'
import { Nvtx, openNvtx } from '../../libraries/nvtx.js'
import type { Stream } from '../../order/stream.js'
import type { DeviceBuffer } from '../buffer.js'
import type { Pool } from '../pool.js'
import { Wrapper } from './wrapper.js'

/** Options of `profiled`. */
export interface ProfiledOptions {
  /** where the events go; default `openNvtx()` */
  readonly nvtx?: Nvtx
  /** what the memory is for: a short text such as 'weights', added to each event behind a # */
  readonly name?: string
  /** also tell memory checkers the name of each buffer's memory; default false */
  readonly memoryNames?: boolean
}

const OPTIONS = ['nvtx', 'name', 'memoryNames']

/**
 * `upstream`, whose allocations and frees are ranges of NVTX, to be seen in NVIDIA's profilers. Throws NoLibraryError where
 * there is no NVTX, or one that cannot name memory when that is asked for, and TypeError for a bad option.
 */
export function profiled(upstream: Pool, options: ProfiledOptions = {}): ProfiledPool {
  checkOptionNames('profiled', options, OPTIONS)
  const { nvtx, name = '', memoryNames = false } = options
  if (nvtx !== undefined && !(nvtx instanceof Nvtx)) {
    throw new TypeError(`profiled: nvtx must be what openNvtx returns, not ${describe(nvtx)}`)
  }
  if (typeof name !== 'string') throw new TypeError(`profiled: name must be a text, not ${describe(name)}`)
  if (typeof memoryNames !== 'boolean') {
    throw new TypeError(`profiled: memoryNames must be true or false, not ${describe(memoryNames)}`)
  }
  return new ProfiledPool(upstream, nvtx ?? openNvtx(), name, memoryNames)
}

/** Made by `profiled`. */
export class ProfiledPool extends Wrapper {
  private readonly suffix: string

  constructor(
    upstream: Pool,
    /** where the events go */
    readonly nvtx: Nvtx,
    /** the name in the texts of the events */
    readonly name: string,
    /** whether memory gets names, too */
    readonly memoryNames: boolean,
  ) {
    super(upstream)
    this.suffix = name === '' ? '' : ` #${name}`
    if (memoryNames) nvtx.checkNamesMemory()
  }

  /** As of `Pool`, within a range of the profiler. */
  override allocate(bytes: number, stream?: Stream, alignment?: number): DeviceBuffer {
    checkByteCount(bytes, 'bytes')
    return this.inRange('allocate', bytes, () => {
      try {
        return super.allocate(bytes, stream, alignment)
      } catch (error) {
        if (error instanceof OutOfMemoryError) this.markNoRoom(bytes)
        throw error
      }
    })
  }

  /** As of `Pool`, within a range of the profiler. */
  override tryAllocate(bytes: number, stream?: Stream, alignment?: number): DeviceBuffer | null {
    checkByteCount(bytes, 'bytes')
    return this.inRange('allocate', bytes, () => {
      const buffer = super.tryAllocate(bytes, stream, alignment)
      if (buffer === null) this.markNoRoom(bytes)
      return buffer
    })
  }

  override release(buffer: DeviceBuffer, stream?: Stream): void {
    const ptr = buffer.allocation.addressOf(buffer.record, buffer.tag, 'free')
    this.inRange('free', ptr, () => super.release(buffer, stream))
  }

  protected override adopt(buffer: DeviceBuffer): DeviceBuffer {
    const { ptr, byteLength } = buffer
    const what = `${formatBytes(byteLength)}${this.suffix}`
    this.nvtx.mark(`${what} at 0x${ptr.toString(16)}`, ptr)
    if (this.memoryNames) this.nvtx.nameMemory(ptr, what)
    return super.adopt(buffer)
  }

  private inRange<R>(call: string, payload: number, work: () => R): R {
    this.nvtx.push(`${call}${this.suffix}`, payload)
    try {
      return work()
    } finally {
      this.nvtx.pop()
    }
  }

  private markNoRoom(bytes: number): void {
    this.nvtx.mark(`no room for ${formatBytes(bytes)}${this.suffix}`, bytes)
  }
}
