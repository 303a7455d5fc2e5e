import { WrongTypeError } from '../../base/argument-errors.js'
import { bytesFrom, describe, formatBytes } from '../../base/bytes.js'
import { PoolError } from '../../base/errors.js'
import { showAsText } from '../../base/readable.js'
import { unreachable } from '../../driver/context.js'
import { checkIsStream, type Stream } from '../../order/stream.js'
import { DeviceArray, type TypedArrayConstructor, type TypedArrayOf } from '../array.js'
import { DeviceBuffer } from '../buffer.js'
import type { TransferredBuffer } from '../transferred-buffer.js'
import type { HostPool } from './host-pool.js'

/**
 * Pinned host memory from a host pool. Programs fill it through typed arrays; copies between it and the device run in
 * stream order while Node goes on. It is freed by `free()` or at the end of a `using` block; afterwards every use but
 * disposing throws PoolError. Arrays made from the buffer must not be used after the free either, because the pool
 * may hand out the memory again.
 */
export class HostBuffer implements Disposable {
  private memory: Uint8Array | null = null

  /** Made by host pools. `block` is the pool's own handle of the memory, with host addresses. */
  constructor(
    /** the pool that the memory came from */
    readonly pool: HostPool,
    protected readonly block: DeviceBuffer,
  ) {}

  /**
   * The memory, as the same array each time. In a shared pool it lies in a SharedArrayBuffer. Throws PoolError after
   * the free.
   */
  get bytes(): Uint8Array {
    return this.memoryFor('bytes')
  }

  /** A typed array over as many whole elements as fit. Throws TypeError unless `type` is a typed array class. */
  view<C extends TypedArrayConstructor>(type: C): TypedArrayOf<C> {
    if (typeof type !== 'function' || !(type.BYTES_PER_ELEMENT > 0)) {
      throw new WrongTypeError(`view: type must be a typed array class such as Float32Array, not ${describe(type)}`)
    }
    return this.viewFor('view', type, 0, Math.floor(this.memoryFor('view').length / type.BYTES_PER_ELEMENT))
  }

  /**
   * `length` elements from byte `start` on, in the name of `call`.
   * @internal
   */
  viewFor<C extends TypedArrayConstructor>(call: string, type: C, start: number, length: number): TypedArrayOf<C> {
    const { buffer, byteOffset } = this.memoryFor(call)
    return new type(buffer as ArrayBuffer, byteOffset + start, length) as TypedArrayOf<C>
  }

  /** The requested size in bytes. */
  get byteLength(): number {
    return this.block.byteLength
  }

  /** A name for people, '' at first, as `DeviceBuffer.label`. */
  get label(): string {
    return this.block.label
  }

  /** Names the buffer. */
  set label(text: string) {
    this.block.label = text
  }

  /**
   * The address that the pool knows the memory by. Throws PoolError after the free.
   * @internal
   */
  get address(): number {
    return this.block.addressFor('address')
  }

  /**
   * The address that kernels use; announce the kernel's stream with `recordUse`. Throws PoolError unless the pool was
   * made with `mapped: true`.
   */
  get devicePtr(): number {
    return this.pool.memory.devicePtrAt(this.block.addressFor('devicePtr'))
  }

  /** True after the buffer was freed, or its pool was closed. */
  get freed(): boolean {
    return this.block.freed
  }

  /**
   * Copies `byteLength` bytes from byte `sourceOffset` on (default: all the rest) to byte `byteOffset` of `target`,
   * on the target's stream. The device reads the memory when the copy runs: do not change it before that, for example
   * before `await target.stream.finished()`. On a stream that is captured, the graph reads it at each launch. Throws
   * RangeError for a range that does not lie in both buffers, and PoolError for a buffer of a device without access.
   */
  copyTo(
    target: DeviceBuffer | DeviceArray,
    byteOffset = 0,
    sourceOffset = 0,
    byteLength = bytesFrom(sourceOffset, this.memoryFor('copyTo').length),
  ): void {
    const source = this.part('copyTo', sourceOffset, byteLength, 'sourceOffset')
    const address = this.addressOn('copyTo', target, byteOffset, byteLength, 'byteOffset')
    if (byteLength === 0) return
    target.noteUse(target.stream, 'copyTo')
    this.pool.noteCopy(this.block, target.stream, 'copyTo')
    const driver = this.pool.context.activate()
    target.stream.submit('copyTo', handle => driver.cuMemcpyHtoDAsync(address, source, handle))
  }

  /**
   * Copies `byteLength` bytes from byte `sourceOffset` of `source` on (default: all the rest) to byte `byteOffset` of
   * this buffer, on the source's stream. The data is there when the copy has run, for example after `await
   * source.stream.finished()`. Throws like `copyTo`.
   */
  copyFrom(
    source: DeviceBuffer | DeviceArray,
    byteOffset = 0,
    sourceOffset = 0,
    byteLength = checkPlace('copyFrom', source).rest('copyFrom', sourceOffset),
  ): void {
    const target = this.part('copyFrom', byteOffset, byteLength, 'byteOffset')
    const address = this.addressOn('copyFrom', source, sourceOffset, byteLength, 'sourceOffset')
    if (byteLength === 0) return
    source.noteUse(source.stream, 'copyFrom')
    this.pool.noteCopy(this.block, source.stream, 'copyFrom')
    const driver = this.pool.context.activate()
    source.stream.submit('copyFrom', handle => driver.cuMemcpyDtoHAsync(target, address, handle))
  }

  /**
   * Announces that work submitted to `stream` before the free uses this memory: a kernel, or a copy by
   * `DeviceBuffer.write` or by another library. `copyTo` and `copyFrom` need no announcement. Throws PoolError for a
   * closed stream.
   */
  recordUse(stream: Stream): void {
    checkIsStream('recordUse', stream)
    this.pool.checkCopies('recordUse', stream)
    this.pool.noteUse(this.block, stream, 'recordUse')
  }

  /**
   * Gives the memory back, without waiting. The pool hands it out again when the host has seen all noted work on it
   * complete: the next program to get it writes it at once. With `stream`, work submitted to that stream before this
   * call counts as noted. Throws PoolError when already freed.
   */
  free(stream?: Stream): void {
    if (stream !== undefined) this.pool.noteUse(this.block, stream, 'free')
    this.block.free()
  }

  /** Calls `free()` at the end of a `using` block; does not throw when already freed. */
  [Symbol.dispose](): void {
    this.block[Symbol.dispose]()
  }

  /**
   * Gives the buffer up, for `pool.adopt` in another thread that shares the pool. Later uses of it in this thread
   * throw PoolError. Throws PoolError for a buffer of a pool that is not shared by threads.
   */
  transfer(): TransferredBuffer {
    return this.block.transfer()
  }

  /** One line for people, such as `HostBuffer { 1 MiB of pinned memory, live }`; console.log shows it. */
  toString(): string {
    return this.freed ? 'HostBuffer { freed }' : `HostBuffer { ${formatBytes(this.byteLength)} of pinned memory, live }`
  }

  /** The plain values that JSON.stringify writes, without the contents. */
  toJSON(): object {
    return this.freed ? { freed: true } : { byteLength: this.byteLength, freed: false }
  }

  /** The memory. Throws PoolError, in the name of `call`, after the free. */
  private memoryFor(call: string): Uint8Array {
    const ptr = this.block.addressFor(call)
    this.memory ??= this.pool.memory.bytesAt(ptr, this.byteLength)
    return this.memory
  }

  /** A view of a part, after checking that the buffer has it. `argument` is the program's name of the offset. */
  private part(call: string, byteOffset: number, byteLength: number, argument: string): Uint8Array {
    this.block.rangeOf(call, byteOffset, byteLength, argument)
    const bytes = this.memoryFor(call)
    return byteLength === bytes.length ? bytes : bytes.subarray(byteOffset, byteOffset + byteLength)
  }

  /** The device address of a part, after checking that it can be copied to and from here. */
  private addressOn(
    call: string,
    place: DeviceBuffer | DeviceArray,
    byteOffset: number,
    byteLength: number,
    argument: string,
  ): number {
    checkPlace(call, place)
    const { context } = this.pool
    if (place.stream.context !== context) {
      throw new PoolError(
        `${call}: the buffer's stream belongs to another device; use a host pool of that device`,
        'ERR_OTHER_DEVICE',
      )
    }
    if (!place.reachableFrom(context)) throw unreachable(`${call}: the buffer`, context, place.context)
    this.pool.checkCopies(call, place.stream)
    return place.rangeOf(call, byteOffset, byteLength, argument)
  }
}

showAsText(HostBuffer)

/** Throws TypeError, in the name of `call`, unless `place` is device memory. */
export function checkPlace<P extends DeviceBuffer | DeviceArray>(call: string, place: P): P {
  if (place instanceof DeviceBuffer || place instanceof DeviceArray) return place
  throw new WrongTypeError(`${call}: copies go to or from a DeviceBuffer or DeviceArray, not ${describe(place)}`)
}
