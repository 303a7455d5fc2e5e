import { formatBytes } from '../../base/bytes.js'
import { PoolError } from '../../base/errors.js'
import { showAsText } from '../../base/readable.js'
import type { Stream } from '../../order/stream.js'
import {
  checkFits,
  DeviceArray,
  elementOf,
  elementsBetween,
  elementsIn,
  type SameElements,
  type TypedArray,
  type TypedArrayConstructor,
} from '../array.js'
import type { DeviceBuffer } from '../buffer.js'
import { checkPlace, type HostBuffer } from './host-buffer.js'
import type { HostPool } from './host-pool.js'

/**
 * Typed elements in pinned host memory: a whole buffer, made by `pool.allocateArray(Float32Array, count)`, or a view of
 * a part, made by `subarray`, which does not own it.
 */
export class HostArray<T extends TypedArray = TypedArray> implements Disposable {
  private array: T | null = null

  /** Made by host pools. */
  constructor(
    /** the memory behind the array */
    readonly buffer: HostBuffer,
    private readonly type: TypedArrayConstructor,
    /** in bytes from the start of the buffer */
    readonly byteOffset: number,
    /** in elements */
    readonly length: number,
    private readonly owner: boolean,
  ) {}

  /** The elements, as the same typed array each time. Throws PoolError after the free. */
  get elements(): T {
    if (this.array === null || this.freed) {
      this.array = this.buffer.viewFor('elements', this.type, this.byteOffset, this.length) as T
    }
    return this.array
  }

  /** Their memory in bytes; of a whole array the same one each time. Throws PoolError after the free. */
  get bytes(): Uint8Array {
    if (this.owner) return this.buffer.bytes
    return this.buffer.viewFor('bytes', Uint8Array, this.byteOffset, this.byteLength)
  }

  /** Its size in bytes. */
  get byteLength(): number {
    return this.length * this.type.BYTES_PER_ELEMENT
  }

  /** The address that kernels use, as `HostBuffer.devicePtr`. */
  get devicePtr(): number {
    return this.buffer.devicePtr + this.byteOffset
  }

  /** The pool that the memory came from. */
  get pool(): HostPool {
    return this.buffer.pool
  }

  /** The label of the buffer, as `HostBuffer.label`. */
  get label(): string {
    return this.buffer.label
  }

  /** Names the buffer. */
  set label(text: string) {
    this.buffer.label = text
  }

  /** True after the buffer was freed, or its pool was closed. */
  get freed(): boolean {
    return this.buffer.freed
  }

  /**
   * A view of the elements from `begin` to before `end`, counted as in `Array.slice`. It is stale once the buffer is
   * freed.
   */
  subarray(begin = 0, end = this.length): HostArray<T> {
    const [first, count] = elementsBetween('subarray', begin, end, this.length)
    const offset = this.byteOffset + first * this.type.BYTES_PER_ELEMENT
    return new HostArray(this.buffer, this.type, offset, count, false)
  }

  /** Sets the elements from `begin` to before `end` at once. Takes and refuses what `DeviceArray.fill` does. */
  fill(value: T[number], begin = 0, end = this.length): void {
    const [element] = elementOf('fill', this.type, value)
    const [first, count] = elementsBetween('fill', begin, end, this.length)
    const elements = this.buffer.viewFor('fill', this.type, this.byteOffset, this.length) as Float64Array
    elements.fill(element as number, first, first + count)
  }

  /**
   * Copies all elements to `target`, from its element `offset` on, as `HostBuffer.copyTo`: in stream order. The target
   * is an array of the same type, or a buffer.
   */
  copyTo(target: DeviceArray<SameElements<T>> | DeviceBuffer, offset = 0): void {
    if (target instanceof DeviceArray) target.checkElements('copyTo', 'target', this.type)
    const size = this.type.BYTES_PER_ELEMENT
    const room = Math.floor(checkPlace('copyTo', target).rest('copyTo', 0) / size)
    checkFits('copyTo', offset, this.length, room)
    this.buffer.copyTo(target, offset * size, this.byteOffset, this.byteLength)
  }

  /**
   * Copies all of `source`, an array of the same type or a buffer of whole elements, to element `offset` on, as
   * `HostBuffer.copyFrom`: in stream order.
   */
  copyFrom(source: DeviceArray<SameElements<T>> | DeviceBuffer, offset = 0): void {
    if (source instanceof DeviceArray) source.checkElements('copyFrom', 'source', this.type)
    const bytes = checkPlace('copyFrom', source).rest('copyFrom', 0)
    checkFits('copyFrom', offset, elementsIn('copyFrom', bytes, this.type), this.length)
    this.buffer.copyFrom(source, this.byteOffset + offset * this.type.BYTES_PER_ELEMENT)
  }

  /** As `HostBuffer.recordUse`. */
  recordUse(stream: Stream): void {
    this.buffer.recordUse(stream)
  }

  /** Gives the memory back, as `HostBuffer.free`; a view cannot. */
  free(stream?: Stream): void {
    if (!this.owner) throw new PoolError('free: this is a view made by subarray; free the array it was made from')
    this.buffer.free(stream)
  }

  /** Frees the buffer; does nothing if it was freed already. */
  [Symbol.dispose](): void {
    if (this.owner) this.buffer[Symbol.dispose]()
  }

  /** One line for people, such as `HostArray { 2 Float32Array elements, 8 B of pinned memory, live }`. */
  toString(): string {
    const elements = `${this.length} ${this.type.name} elements`
    if (this.freed) return `HostArray { ${elements}, freed }`
    return `HostArray { ${elements}, ${formatBytes(this.byteLength)} of pinned memory, live }`
  }

  /** The plain values that JSON.stringify writes, without the elements. */
  toJSON(): object {
    const { type, length, byteLength, freed } = this
    return { type: type.name, length, byteLength, freed }
  }
}

showAsText(HostArray)
