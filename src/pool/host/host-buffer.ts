import { describe } from '../../base/bytes.js'
import { PoolError } from '../../base/errors.js'
import { unreachable } from '../../driver/context.js'
import { checkIsStream, type Stream } from '../../order/stream.js'
import { DeviceArray, type TypedArray, type TypedArrayConstructor, type TypedArrayOf } from '../array.js'
import { DeviceBuffer } from '../buffer.js'
import type { TransferredBuffer } from '../transferred.js'
import type { HostPool } from './host-pool.js'

/**
 * Pinned host memory from a host pool: arrays over it are filled like any other, and copies between it and the device run
 * in stream order while Node goes on. Freed by `free()` or at the end of a `using` block; after that every use throws
 * PoolError, except disposing. Arrays made from it must not be used after that either: others may have the memory then.
 */
export class HostBuffer implements Disposable {
  private memory: Uint8Array | null = null

  /** Made by host pools. `block` is what the pool knows the memory by: its addresses are the host's. */
  constructor(
    /** the pool that it belongs to */
    readonly pool: HostPool,
    protected readonly block: DeviceBuffer,
  ) {}

  /** The memory: the same array each time. Of a shared pool it lies in a SharedArrayBuffer. */
  get bytes(): Uint8Array {
    const { ptr, byteLength } = this.block
    this.memory ??= this.pool.memory.bytesAt(ptr, byteLength)
    return this.memory
  }

  /** A typed array over as many whole elements as fit. */
  view<C extends TypedArrayConstructor>(type: C): TypedArrayOf<C> {
    if (typeof type !== 'function' || !(type.BYTES_PER_ELEMENT > 0)) {
      throw new TypeError(`view: type must be a typed array class such as Float32Array, not ${describe(type)}`)
    }
    const { buffer, byteOffset, byteLength } = this.bytes
    const length = Math.floor(byteLength / type.BYTES_PER_ELEMENT)
    return new type(buffer as ArrayBuffer, byteOffset, length) as TypedArrayOf<C>
  }

  /** Bytes asked for. */
  get byteLength(): number {
    return this.block.byteLength
  }

  /** Where kernels find the memory; of a pool made with `mapped: true` only. Announce the kernel's stream with `recordUse`. */
  get devicePtr(): number {
    return this.pool.memory.devicePtrAt(this.block.ptr)
  }

  /** True after the buffer was freed or its pool closed. */
  get freed(): boolean {
    return this.block.freed
  }

  /**
   * Copies a part, or all, to byte `byteOffset` of `target`, in the target's stream. The device reads the memory when the
   * copy runs: do not change it before that, for example not before `await target.stream.finished()`.
   */
  copyTo(
    target: DeviceBuffer | DeviceArray,
    byteOffset = 0,
    sourceOffset = 0,
    byteLength = this.byteLength - sourceOffset,
  ): void {
    const source = this.part('copyTo', sourceOffset, byteLength)
    const address = this.addressOn('copyTo', target, byteOffset, byteLength)
    if (byteLength === 0) return
    target.noteUse(target.stream, 'copyTo')
    this.pool.noteCopy(this.block, target.stream)
    const driver = this.pool.context.activate()
    target.stream.submit('copyTo', handle => driver.cuMemcpyHtoDAsync(address, source, handle))
  }

  /**
   * Copies a part of `source`, or all, to byte `byteOffset` of this buffer, in the source's stream. The data is there when
   * the copy has run, for example after `await source.stream.finished()`.
   */
  copyFrom(
    source: DeviceBuffer | DeviceArray,
    byteOffset = 0,
    sourceOffset = 0,
    byteLength = checkPlace('copyFrom', source).byteLength - sourceOffset,
  ): void {
    const target = this.part('copyFrom', byteOffset, byteLength)
    const address = this.addressOn('copyFrom', source, sourceOffset, byteLength)
    if (byteLength === 0) return
    source.noteUse(source.stream, 'copyFrom')
    this.pool.noteCopy(this.block, source.stream)
    const driver = this.pool.context.activate()
    source.stream.submit('copyFrom', handle => driver.cuMemcpyDtoHAsync(target, address, handle))
  }

  /**
   * Work submitted to `stream` before the free uses this memory: a kernel, or a copy made by `DeviceBuffer.write` or another
   * library. The copies of this class are noted by themselves.
   */
  recordUse(stream: Stream): void {
    checkIsStream('recordUse', stream)
    stream.checkOpen('recordUse')
    this.pool.noteUse(this.block, stream, 'recordUse')
  }

  /**
   * Gives the memory back: at once, or when the host has seen all noted work on it complete, since whoever gets it next
   * writes it without waiting for any stream. With `stream` also the work submitted to that before this call.
   */
  free(stream?: Stream): void {
    if (stream !== undefined) this.pool.noteUse(this.block, stream, 'free')
    this.block.free()
  }

  /** `free()` at the end of a `using` block; nothing when already freed. */
  [Symbol.dispose](): void {
    this.block[Symbol.dispose]()
  }

  /**
   * Gives the buffer up, for `pool.adopt` in another thread that shares the pool; any use of it here from now on throws
   * PoolError. Throws PoolError for a buffer of a pool that no threads share.
   */
  transfer(): TransferredBuffer {
    return this.block.transfer()
  }

  /** A view of a part, after checking that the buffer has it. */
  private part(call: string, byteOffset: number, byteLength: number): Uint8Array {
    this.block.rangeOf(call, byteOffset, byteLength)
    return byteLength === this.bytes.length ? this.bytes : this.bytes.subarray(byteOffset, byteOffset + byteLength)
  }

  /** The device address of a part, after checking that it can be copied to and from here. */
  private addressOn(call: string, place: DeviceBuffer | DeviceArray, byteOffset: number, byteLength: number): number {
    checkPlace(call, place)
    const { context } = this.pool
    if (place.stream.context !== context) {
      throw new PoolError(`${call}: the buffer's stream belongs to another device; use a host pool of that device`)
    }
    if (!place.reachableFrom(context)) throw unreachable(`${call}: the buffer`, context, place.context)
    place.stream.checkOpen(call)
    if (place instanceof DeviceBuffer) return place.rangeOf(call, byteOffset, byteLength)
    const address = place.buffer.rangeOf(call, byteOffset, byteLength) + place.byteOffset
    if (byteOffset + byteLength <= place.byteLength) return address
    throw new RangeError(
      `${call}: bytes ${byteOffset} to ${byteOffset + byteLength} do not lie in the array's ${place.byteLength}`,
    )
  }
}

function checkPlace<P extends DeviceBuffer | DeviceArray>(call: string, place: P): P {
  if (place instanceof DeviceBuffer || place instanceof DeviceArray) return place
  throw new TypeError(`${call}: copies go to or from a DeviceBuffer or DeviceArray, not ${describe(place)}`)
}

/** A host buffer of typed elements. Made by `pool.allocateArray(Float32Array, count)`. */
export class HostArray<T extends TypedArray = TypedArray> extends HostBuffer {
  private array: T | null = null

  constructor(
    pool: HostPool,
    block: DeviceBuffer,
    private readonly type: TypedArrayConstructor,
  ) {
    super(pool, block)
  }

  /** The elements: the same array each time. */
  get elements(): T {
    if (this.array === null || this.freed) this.array = this.view(this.type) as T
    return this.array
  }

  /** How many elements it has. */
  get length(): number {
    return this.byteLength / this.type.BYTES_PER_ELEMENT
  }
}
