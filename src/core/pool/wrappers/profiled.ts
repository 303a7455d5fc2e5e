// Shows a profiler what a pool does. Every call is a range, so that its driver calls appear inside. The buffer is a
// mark in that range, since its address is known only then. Range names are few and repeat, because tools aggregate
// by name; the payload carries the size or address. An allocation and its free take about 1.3 µs longer even without
// a tool, so wrap pools only in runs to be profiled.

import { WrongTypeError } from '../../base/argument-errors.js'
import type { ByteSize } from '../../base/byte-size.js'
import { describe, formatBytes } from '../../base/bytes.js'
import { OutOfMemoryError } from '../../base/errors.js'
import { checkFlag, checkOptionNames } from '../../base/option-names.js'
import { Nvtx, openNvtx } from '../../libraries/nvtx.js'
import type { Stream } from '../../order/stream.js'
import type { DeviceBuffer } from '../buffer.js'
import type { AllocateOptions } from '../long-form.js'
import type { Pool } from '../pool.js'
import { Wrapper } from './wrapper.js'

/** Options of `profiled()`; every one may be left out. */
export interface ProfiledOptions {
  /** the NVTX binding that gets the events; default `openNvtx()` */
  readonly nvtx?: Nvtx
  /** the purpose of the memory: a short text such as 'weights', added to each event after a #; default none */
  readonly name?: string
  /** whether memory checkers get a name for each buffer's memory, too; default false */
  readonly memoryNames?: boolean
}

const OPTIONS = ['nvtx', 'name', 'memoryNames']

/**
 * Wraps `upstream` so that its allocations and frees are NVTX ranges, for NVIDIA's profilers. Throws NoLibraryError
 * if NVTX is missing, or cannot name memory although `memoryNames` is set; throws TypeError for a bad option.
 */
export function profiled(upstream: Pool, options: ProfiledOptions = {}): ProfiledPool {
  checkOptionNames('profiled', options, OPTIONS)
  const { nvtx, name = '', memoryNames = false } = options
  if (nvtx !== undefined && !(nvtx instanceof Nvtx)) {
    throw new WrongTypeError(`profiled: nvtx must be what openNvtx returns, not ${describe(nvtx)}`)
  }
  if (typeof name !== 'string') throw new WrongTypeError(`profiled: name must be a text, not ${describe(name)}`)
  checkFlag('profiled: memoryNames', memoryNames)
  return new ProfiledPool(upstream, nvtx ?? openNvtx(), name, memoryNames)
}

/** A pool whose calls are NVTX ranges. Made by `profiled()`. */
export class ProfiledPool extends Wrapper {
  private readonly suffix: string

  constructor(
    upstream: Pool,
    /** the binding that gets the events */
    readonly nvtx: Nvtx,
    /** the text added to each event; '' for none */
    readonly name: string,
    /** whether each buffer's memory gets a name, for memory checkers */
    readonly memoryNames: boolean,
  ) {
    super(upstream)
    this.suffix = name === '' ? '' : ` #${name}`
    if (memoryNames) nvtx.checkNamesMemory()
  }

  /** As of `Pool`, within a range of the profiler. */
  override allocate(size: ByteSize, stream?: Stream | AllocateOptions, alignment?: number): DeviceBuffer {
    const bytes = this.bytesOf(size)
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
  override tryAllocate(size: ByteSize, stream?: Stream | AllocateOptions, alignment?: number): DeviceBuffer | null {
    const bytes = this.bytesOf(size)
    return this.inRange('allocate', bytes, () => {
      const buffer = super.tryAllocate(bytes, stream, alignment)
      if (buffer === null) this.markNoRoom(bytes)
      return buffer
    })
  }

  /** @internal */
  override release(buffer: DeviceBuffer, stream?: Stream): void {
    const ptr = buffer.addressFor('free')
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
