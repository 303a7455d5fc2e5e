// A pool imported from another process. It allocates nothing. Single blocks of the exporter are imported under new
// addresses. Imports are not counted: a second import of a block returns the same address, and the first free ends
// it. The exporter must free last: if its free runs first, the next access of the importer is illegal.

import type { Bytes } from '../../../base/typed-arrays.js'
import { RESULT } from '../../constants.js'
import type { CallInterceptor } from '../call-interceptor.js'
import { SimulatedDevice } from '../device.js'
import type { AddressRegion, AddressSpace } from '../memory/address-space.js'
import type { Scheduler } from '../streams/scheduler.js'
import type { StreamQueue } from '../streams/stream-queue.js'
import type { MemoryPool } from './memory-pool.js'
import { PoolAttributes } from './pool-attributes.js'
import { type PoolPlace, placeOfDevice } from './pool-properties.js'

const MAGIC = 0x5eed_ab1e
const EXPORTED_BYTES = 64

/** 64 bytes that name the allocation at `ptr` to an importer; undefined if no allocation of `pool` begins there. */
export function exportPointer(pool: MemoryPool, ptr: number): Bytes | undefined {
  const serial = pool.exportSerial(ptr)
  if (serial === undefined) return undefined
  const words = new Float64Array(EXPORTED_BYTES / 8)
  words.set([MAGIC, pool.id, ptr, serial])
  return new Uint8Array(words.buffer)
}

/** The importer's side of an exported pool. */
export class PoolImport extends PoolAttributes {
  readonly place: PoolPlace
  private destroyed = false
  /** by address: the imported blocks */
  private readonly views = new Map<number, { serial: number; region: AddressRegion }>()

  constructor(
    private readonly source: MemoryPool,
    private readonly space: AddressSpace,
    private readonly scheduler: Scheduler,
    private readonly interceptor: CallInterceptor,
  ) {
    super()
    const { memory } = source.place
    this.place = memory instanceof SimulatedDevice ? placeOfDevice(memory) : { ...source.place, access: { devices: 0 } }
    source.imports.add(this)
  }

  /** The address of an exported block in this process. */
  importPointer(exported: Uint8Array): number {
    const block = exported.length === EXPORTED_BYTES ? this.find(new Float64Array(exported.slice().buffer)) : undefined
    if (block === undefined) {
      throw this.interceptor.invalid('no exported allocation of this pool that is still live')
    }
    for (const { serial, region } of this.views.values()) if (serial === block.serial) return region.base
    const region = this.space.claim(block.bytes)
    if (region === null) throw this.interceptor.refuse(RESULT.CUDA_ERROR_OUT_OF_MEMORY, 'no addresses are left')
    region.hold(this.place.memory, block.chunk.contents!, this.place.access, block.address - block.chunk.base)
    this.views.set(region.base, { serial: block.serial, region })
    this.addUsed(block.bytes)
    this.addReserved(block.bytes)
    return region.base
  }

  /** Frees the importer's view only, in the order of `stream`; false if no view begins at `ptr`. */
  release(ptr: number, stream: StreamQueue): boolean {
    const view = this.views.get(ptr)
    if (view === undefined) return false
    this.views.delete(ptr)
    this.usedBytes -= view.region.bytes
    this.reservedBytes -= view.region.bytes
    this.scheduler.submit(stream, () => this.space.release(view.region))
    if (this.gone) this.source.imports.delete(this)
    return true
  }

  owns(ptr: number): boolean {
    return this.views.has(ptr)
  }

  /** The exporter has freed the allocation with this serial number. */
  lose(lost: number): void {
    for (const { serial, region } of this.views.values()) if (serial === lost) region.contents = null
  }

  /** Does nothing, nor does `synchronized`: an imported pool has no memory of its own. */
  trimTo(_keepBytes: number): void {}

  synchronized(): void {}

  destroy(): void {
    this.destroyed = true
    if (this.gone) this.source.imports.delete(this)
  }

  /** Whether the pool is destroyed and has no views left. */
  get gone(): boolean {
    return this.destroyed && this.views.size === 0
  }

  private find([magic, pool, ptr, serial]: Float64Array) {
    return magic === MAGIC && pool === this.source.id ? this.source.findExported(ptr, serial) : undefined
  }
}
