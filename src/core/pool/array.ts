import { OutOfRangeError, WrongTypeError } from '../base/argument-errors.js'
import { bytesFrom, describe, formatBytes } from '../base/bytes.js'
import { PoolError } from '../base/errors.js'
import { hex, showAsText } from '../base/readable.js'
import { type Bytes, checkBytes, type Float16, typedArrayName } from '../base/typed-arrays.js'
import type { Context } from '../driver/context.js'
import type { Stream } from '../order/stream.js'
import type { BufferOwner } from './allocation.js'
import type { DeviceBuffer } from './buffer.js'
import type { AllocateOptions } from './long-form.js'

/** The typed arrays of JavaScript that device memory can be viewed as, over any buffer. */
export type TypedArray =
  | Int8Array
  | Uint8Array
  | Uint8ClampedArray
  | Int16Array
  | Uint16Array
  | Int32Array
  | Uint32Array
  | Float32Array
  | Float64Array
  | BigInt64Array
  | BigUint64Array
  | Float16

/** A constructor of typed arrays, such as `Float32Array`. */
export interface TypedArrayConstructor {
  /** the constructor's name, for messages */
  readonly name: string
  /** bytes of an element */
  readonly BYTES_PER_ELEMENT: number
  new (buffer: ArrayBuffer, byteOffset?: number, length?: number): TypedArray
}
/** The typed array that a constructor makes: `Float32Array` for `typeof Float32Array`. */
export type TypedArrayOf<C extends TypedArrayConstructor> = InstanceType<C>
/** `T` over any buffer: each `Float32Array` for `Float32Array<ArrayBuffer>`. */
export type SameElements<T extends TypedArray> = TypedArray & Pick<T, typeof Symbol.toStringTag>

/**
 * Typed elements in device memory: a whole buffer, or a view of a part, made by `subarray`, which does not own it.
 */
export class DeviceArray<T extends TypedArray = TypedArray> implements Disposable {
  private constructor(
    /** the memory behind the view */
    readonly buffer: DeviceBuffer,
    private readonly type: TypedArrayConstructor,
    /** in bytes from the start of the buffer */
    readonly byteOffset: number,
    /** in elements */
    readonly length: number,
    private readonly owner: boolean,
  ) {}

  /**
   * Called as `pool.allocateArray(Float32Array, count, stream)`; errors are in the name of `call`.
   * @internal
   */
  static allocate<C extends TypedArrayConstructor>(
    pool: { allocate(bytes: number, stream?: Stream | AllocateOptions): DeviceBuffer },
    type: C,
    count: number,
    stream?: Stream | AllocateOptions,
    call = 'allocateArray',
  ): DeviceArray<TypedArrayOf<C>> {
    return new DeviceArray(pool.allocate(byteLengthOf(type, count, call), stream), type, 0, count, true)
  }

  /**
   * Called as `pool.upload(source, stream)`; errors are in the name of `call`.
   * @internal
   */
  static upload<T extends TypedArray>(
    pool: { allocate(bytes: number, stream?: Stream | AllocateOptions): DeviceBuffer },
    source: T,
    stream?: Stream | AllocateOptions,
    call = 'upload',
  ): DeviceArray<T extends Uint8Array ? Bytes : T> {
    const array = DeviceArray.allocate(pool, typeOf(call, source), source.length, stream, call)
    array.begin(() => array.buffer.write(source))
    return array as DeviceArray<T extends Uint8Array ? Bytes : T>
  }

  /**
   * Called as `pool.zeros(Float32Array, count, stream)`.
   * @internal
   */
  static zeros<C extends TypedArrayConstructor>(
    pool: { allocate(bytes: number, stream?: Stream | AllocateOptions): DeviceBuffer },
    type: C,
    count: number,
    stream?: Stream | AllocateOptions,
  ): DeviceArray<TypedArrayOf<C>> {
    const array = DeviceArray.allocate(pool, type, count, stream, 'zeros')
    array.begin(() => array.buffer.fill(0))
    return array
  }

  /**
   * All of a buffer as elements, which owns it.
   * @internal
   */
  static ofWhole(buffer: DeviceBuffer, type: TypedArrayConstructor): DeviceArray {
    return new DeviceArray(buffer, type, 0, elementsIn('ofWhole', buffer.byteLength, type), true)
  }

  /**
   * A view of a part of `buffer`, which does not own it. Throws RangeError, in the name of `call`, if the part does not
   * lie in the buffer, or begins within an element.
   * @internal
   */
  static over<C extends TypedArrayConstructor>(
    buffer: DeviceBuffer,
    type: C,
    byteOffset: number,
    count: number,
    call: string,
  ): DeviceArray<TypedArrayOf<C>> {
    buffer.rangeOf(call, byteOffset, byteLengthOf(type, count, call))
    return new DeviceArray(buffer, type, byteOffset, count, false)
  }

  /**
   * The class of the elements' typed array.
   * @internal
   */
  get elementClass(): TypedArrayConstructor {
    return this.type
  }

  /** Its address on the device. */
  get ptr(): number {
    return this.buffer.ptr + this.byteOffset
  }

  /**
   * As `DeviceBuffer.addressFor`.
   * @internal
   */
  addressFor(call: string): number {
    return this.buffer.addressFor(call) + this.byteOffset
  }

  /** @internal */
  get context(): Context {
    return this.buffer.context
  }

  /**
   * Whether work of `context` can use the memory.
   * @internal
   */
  reachableFrom(context: Context): boolean {
    return this.buffer.reachableFrom(context)
  }

  /**
   * As `DeviceBuffer.rangeOf`, from the first element on.
   * @internal
   */
  rangeOf(call: string, byteOffset: number, byteLength: number, argument?: string): number {
    const address = this.buffer.rangeOf(call, byteOffset, byteLength, argument) + this.byteOffset
    if (byteOffset + byteLength <= this.byteLength) return address
    throw new OutOfRangeError(
      `${call}: bytes ${byteOffset} to ${byteOffset + byteLength} do not lie in the array's ${this.byteLength}`,
    )
  }

  /**
   * As `DeviceBuffer.rest`.
   * @internal
   */
  rest(_call: string, byteOffset: number): number {
    return bytesFrom(byteOffset, this.byteLength)
  }

  /**
   * The buffer, for a call that takes a whole one. Throws PoolError for a view.
   * @internal
   */
  wholeBuffer(call: string): DeviceBuffer {
    if (this.owner) return this.buffer
    throw new PoolError(`${call}: this is a view made by subarray; pass or free the array it was made from`)
  }

  /** The pool, or outermost wrapper, that handed the buffer out. */
  get pool(): BufferOwner {
    return this.buffer.pool
  }

  /** The number of the device that the memory is on. */
  get device(): number {
    return this.buffer.device
  }

  /** The label of the buffer, as `DeviceBuffer.label`. */
  get label(): string {
    return this.buffer.label
  }

  /** Names the buffer. */
  set label(text: string) {
    this.buffer.label = text
  }

  /** True after the buffer was freed or its pool closed. */
  get freed(): boolean {
    return this.buffer.freed
  }

  /** As `DeviceBuffer.recordUse`. */
  recordUse(stream: Stream): void {
    this.buffer.recordUse(stream)
  }

  /** As `DeviceBuffer.noteUse`. */
  noteUse(stream: Stream, call: string): void {
    this.buffer.noteUse(stream, call)
  }

  /** Its size in bytes. */
  get byteLength(): number {
    return this.length * this.type.BYTES_PER_ELEMENT
  }

  /** The stream that the buffer was allocated on. */
  get stream(): Stream {
    return this.buffer.stream
  }

  /**
   * A view of the elements from `begin` to before `end`, counted as in `Array.slice`. It is stale once the buffer is
   * freed.
   */
  subarray(begin = 0, end = this.length): DeviceArray<T> {
    const [from, count] = elementsBetween('subarray', begin, end, this.length)
    const offset = this.byteOffset + from * this.type.BYTES_PER_ELEMENT
    return new DeviceArray(this.buffer, this.type, offset, count, false)
  }

  /** Copies elements of the same type to the device, from element `offset` on. */
  write(source: SameElements<T>, offset = 0): void {
    this.checkType('write', source)
    checkFits('write', offset, source.length, this.length)
    this.buffer.write(source, this.byteOffset + offset * this.type.BYTES_PER_ELEMENT)
  }

  /** `write` that returns when the data has arrived. */
  writeSync(source: SameElements<T>, offset = 0): void {
    this.checkType('writeSync', source)
    checkFits('writeSync', offset, source.length, this.length)
    this.buffer.writeSync(source, this.byteOffset + offset * this.type.BYTES_PER_ELEMENT)
  }

  /** The elements as of this call in stream order, without blocking Node. */
  async read(): Promise<T> {
    return this.elements(await this.buffer.read(this.byteOffset, this.byteLength))
  }

  /** The elements, after waiting for the work submitted to the buffer's stream. */
  readSync(): T {
    return this.elements(this.buffer.readSync(this.byteOffset, this.byteLength))
  }

  /**
   * Sets the elements from `begin` to before `end`, counted as in `Array.fill`, in stream order. The value becomes an
   * element as in a typed array: 300 in an Int8Array is 44. Throws TypeError unless it is a number, or a bigint for
   * integers of 64 bits.
   */
  fill(value: T[number], begin = 0, end = this.length): void {
    const element = elementOf('fill', this.type, value)
    const [from, count] = elementsBetween('fill', begin, end, this.length)
    const size = this.type.BYTES_PER_ELEMENT
    this.buffer.fillWith(element, this.byteOffset + from * size, count * size)
  }

  /**
   * Copies all of `source`, an array of the same type or a buffer of whole elements, to element `offset` on, as
   * `DeviceBuffer.copyFrom`.
   */
  copyFrom(source: DeviceArray<SameElements<T>> | DeviceBuffer, offset = 0): void {
    if (source instanceof DeviceArray) source.checkElements('copyFrom', 'source', this.type)
    checkFits(
      'copyFrom',
      offset,
      elementsIn('copyFrom', this.buffer.bytesOf('copyFrom', source), this.type),
      this.length,
    )
    const target = this.byteOffset + offset * this.type.BYTES_PER_ELEMENT
    if (source instanceof DeviceArray) this.checkApart('copyFrom', source, target)
    this.buffer.copyFrom(source, target)
  }

  /**
   * Throws TypeError, in the name of `call`, unless the elements are of `type`.
   * @internal
   */
  checkElements(call: string, argument: string, type: TypedArrayConstructor): void {
    if (this.type === type) return
    throw new WrongTypeError(
      `${call}: ${argument} must be a DeviceArray of ${type.name}, not of ${this.type.name}; pass its buffer to copy bytes`,
    )
  }

  /** Gives the memory back, as `DeviceBuffer.free`; a view cannot. */
  free(stream?: Stream): void {
    this.wholeBuffer('free').free(stream)
  }

  /** Frees the buffer; does nothing if it was freed already. */
  [Symbol.dispose](): void {
    if (this.owner) this.buffer[Symbol.dispose]()
  }

  /** One line for people, such as `DeviceArray { 4 Float32Array elements, 16 B at 0x7f00, live }`. */
  toString(): string {
    const elements = `${this.length} ${this.type.name} elements`
    if (this.freed) return `DeviceArray { ${elements}, freed }`
    const label = this.label === '' ? '' : `'${this.label}', `
    return `DeviceArray { ${label}${elements}, ${formatBytes(this.byteLength)} at ${hex(this.addressFor('toString'))}, live }`
  }

  /** The plain values that JSON.stringify writes: its type, size and place. The elements stay on the device. */
  toJSON(): object {
    const { type, length, byteLength } = this
    const what = { type: type.name, length, byteLength }
    if (this.freed) return { ...what, freed: true }
    const label = this.label === '' ? {} : { label: this.label }
    return { ...what, ...label, ptr: this.addressFor('toJSON'), freed: false }
  }

  /** Submits the first work on a new array, and gives the memory back if that fails. */
  private begin(work: () => void): void {
    try {
      work()
    } catch (error) {
      this.free()
      throw error
    }
  }

  private elements(bytes: Bytes): T {
    return new this.type(bytes.buffer) as T
  }

  private checkType(call: string, source: TypedArray): void {
    const name = typedArrayName(source) // undefined for a proxy, too
    if (name !== undefined && (source instanceof this.type || name === this.type.name)) return
    throw new WrongTypeError(`${call}: source must be a ${this.type.name}, not ${describe(source)}`)
  }

  /** As the buffer's own check, in elements. */
  private checkApart(call: string, source: DeviceArray, target: number): void {
    const overlap = source.byteLength - Math.abs(source.byteOffset - target)
    if (source.buffer !== this.buffer || overlap <= 0) return
    const count = Math.ceil(overlap / this.type.BYTES_PER_ELEMENT)
    const elements = count === 1 ? '1 element' : `${count} elements`
    throw new OutOfRangeError(`${call}: source overlaps the target by ${elements}; copy through another array`)
  }
}

showAsText(DeviceArray)

/**
 * The bytes of `count` elements. Throws TypeError unless `type` is a typed array class, RangeError for a bad count.
 */
export function byteLengthOf(type: TypedArrayConstructor, count: number, call = 'allocateArray'): number {
  if (typeof type !== 'function' || !(type.BYTES_PER_ELEMENT > 0)) {
    throw new WrongTypeError(`${call}: type must be a typed array class such as Float32Array, not ${describe(type)}`)
  }
  if (!Number.isSafeInteger(count) || count <= 0) {
    throw new OutOfRangeError(`${call}: count must be a whole number of at least 1, not ${describe(count)}`)
  }
  const bytes = count * type.BYTES_PER_ELEMENT
  if (!Number.isSafeInteger(bytes)) {
    throw new OutOfRangeError(`${call}: count ${count} times ${type.BYTES_PER_ELEMENT} bytes is above 2^53`)
  }
  return bytes
}

/** The class of a typed array; of a derived class, such as Node's Buffer, the one of JavaScript itself. */
export function typeOf(call: string, source: TypedArray): TypedArrayConstructor {
  const name = typedArrayName(source)
  if (name === undefined) {
    throw new WrongTypeError(`${call}: source must be a typed array such as a Float32Array, not ${describe(source)}`)
  }
  checkBytes(call, source)
  if (source.length === 0)
    throw new OutOfRangeError(`${call}: source is empty; an array on the device has an element at least`)
  return globalThis[name as 'Uint8Array']
}

/** The value as the only element of a typed array. Throws TypeError, in the name of `call`, for the wrong kind. */
export function elementOf(call: string, type: TypedArrayConstructor, value: unknown): TypedArray {
  const element = new type(new ArrayBuffer(type.BYTES_PER_ELEMENT))
  const kind = typeof element[0]
  if (typeof value !== kind) {
    const form = kind === 'bigint' ? 'a bigint such as 1n' : 'a number'
    throw new WrongTypeError(`${call}: value must be ${form} for elements of ${type.name}, not ${describe(value)}`)
  }
  element.set([value] as never)
  return element
}

/** The elements of `type` in the bytes of a buffer. Throws RangeError, in the name of `call`, unless they are whole. */
export function elementsIn(call: string, bytes: number, type: TypedArrayConstructor): number {
  const count = bytes / type.BYTES_PER_ELEMENT
  if (Number.isInteger(count)) return count
  throw new OutOfRangeError(
    `${call}: the ${bytes} bytes of source are no whole number of ${type.name} elements; copy a part by array.buffer.copyFrom`,
  )
}

/** Throws RangeError, in the name of `call`, unless `count` elements from `offset` on lie within `length`. */
export function checkFits(call: string, offset: number, count: number, length: number): void {
  if (!Number.isSafeInteger(offset) || offset < 0 || offset + count > length) {
    throw new OutOfRangeError(`${call}: ${count} elements from ${describe(offset)} do not fit into ${length} elements`)
  }
}

/** The first element and the number of elements from `begin` to before `end`, counted as in `Array.slice`. */
export function elementsBetween(
  call: string,
  begin: number,
  end: number,
  length: number,
): [first: number, count: number] {
  for (const [argument, index] of Object.entries({ begin, end })) {
    if (typeof index !== 'number')
      throw new WrongTypeError(`${call}: ${argument} must be a number, not ${describe(index)}`)
  }
  const first = clamp(begin, length)
  return [first, Math.max(0, clamp(end, length) - first)]
}

function clamp(index: number, length: number): number {
  const whole = Math.trunc(index) || 0
  return whole < 0 ? Math.max(0, length + whole) : Math.min(whole, length)
}
