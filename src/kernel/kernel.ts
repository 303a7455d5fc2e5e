import { describe } from '../base/bytes.js'
import { PoolError } from '../base/errors.js'
import { type Context, unreachable } from '../driver/context.js'
import type { KernelArguments } from '../driver/driver.js'
import { checkIsStream, type Stream } from '../order/stream.js'
import type { Module } from './module.js'
import type { KernelParameter, KernelSignature } from './ptx.js'

/** One, two or three extents. */
export type Extent = number | readonly [number, number?, number?]

/** How to launch: blocks in the grid, threads in a block, dynamic shared memory, and the stream (the device's default). */
export interface LaunchOptions {
  readonly grid: Extent
  readonly block: Extent
  readonly sharedBytes?: number
  readonly stream?: Stream
}

/** Device memory as a kernel argument: any buffer or array. */
export interface DevicePointer {
  readonly ptr: number
  readonly context?: Context
  /** whether kernels of another context can use the memory; where this is missing they cannot */
  reachableFrom?(context: Context): boolean
  /** told before work on `stream` is submitted that uses the memory; throws where that is a mistake */
  noteUse?(stream: Stream, call: string): void
}

/** What may be passed for a parameter: device memory, a number, or the bytes of a structure passed by value. */
export type KernelArgument = DevicePointer | number | Uint8Array

/** A function that runs on the device. Made by `module.kernel(name)`. */
export class Kernel {
  private readonly bytes: Uint8Array
  private readonly view: DataView
  private readonly args: KernelArguments

  constructor(
    private readonly module: Module,
    readonly signature: KernelSignature,
    private readonly handle: number,
    private readonly defaultStream: Stream,
  ) {
    this.bytes = new Uint8Array(new ArrayBuffer(Math.max(8, signature.byteLength)))
    this.view = new DataView(this.bytes.buffer)
    this.args = { bytes: this.bytes, offsets: signature.parameters.map(parameter => parameter.byteOffset) }
  }

  /**
   * Submits the kernel to a stream and returns at once. Arguments are checked against the parameters that the PTX
   * declares, before the driver sees them: TypeError and RangeError name the parameter.
   */
  launch(options: LaunchOptions, ...values: readonly KernelArgument[]): void {
    this.module.openHandle('launch')
    const stream = options.stream ?? this.defaultStream
    checkIsStream('launch', stream)
    stream.checkUsable('launch')
    if (stream.context !== this.module.context) throw new PoolError('launch: the stream belongs to another device')
    const { parameters, name } = this.signature
    if (values.length !== parameters.length) {
      const wanted = parameters.map(parameter => parameter.name).join(', ')
      throw new TypeError(`launch: ${name} takes ${parameters.length} arguments (${wanted}), not ${values.length}`)
    }
    for (let index = 0; index < values.length; index++) this.set(parameters[index], values[index])
    const shape = {
      grid: extentOf(options.grid, 'grid'),
      block: extentOf(options.block, 'block'),
      sharedBytes: options.sharedBytes === undefined ? 0 : countOf(options.sharedBytes, 'sharedBytes', 0),
    }
    for (const value of values) {
      if (typeof value === 'object' && 'noteUse' in value) value.noteUse?.(stream, 'launch')
    }
    this.module.context.activate().cuLaunchKernel(this.handle, shape, stream.handle, this.args)
  }

  private set(parameter: KernelParameter, value: KernelArgument): void {
    const { byteOffset, byteLength, kind } = parameter
    if (typeof value === 'number') {
      this.setNumber(parameter, value)
    } else if (value instanceof Uint8Array && kind === 'bytes') {
      if (value.byteLength !== byteLength) {
        throw this.mismatch(parameter, `needs ${byteLength} bytes, not ${value.byteLength}`)
      }
      this.bytes.set(value, byteOffset)
    } else if (typeof value === 'object' && value !== null && 'ptr' in value) {
      if (byteLength !== 8 || kind === 'float') throw this.mismatch(parameter, 'is no pointer')
      const { context } = this.module
      if (value.context !== undefined && value.context !== context && value.reachableFrom?.(context) !== true) {
        throw unreachable(`launch: ${this.signature.name}: the buffer for '${parameter.name}'`, context, value.context)
      }
      this.setWide(byteOffset, value.ptr)
    } else throw this.mismatch(parameter, `cannot take ${describe(value)}`)
  }

  private setNumber(parameter: KernelParameter, value: number): void {
    const { byteOffset, byteLength, kind } = parameter
    if (kind === 'bytes') throw this.mismatch(parameter, `needs a Uint8Array of ${byteLength} bytes`)
    if (kind === 'float') {
      if (byteLength === 4) this.view.setFloat32(byteOffset, value, true)
      else if (byteLength === 8) this.view.setFloat64(byteOffset, value, true)
      else throw this.mismatch(parameter, 'is a 16-bit float; pass its bits to a .b16 parameter')
      return
    }
    // Compilers declare a signed int as .u32, so negative numbers are taken for unsigned parameters too.
    const bits = Math.min(byteLength * 8, 54)
    const least = Math.max(-(2 ** (bits - 1)), Number.MIN_SAFE_INTEGER)
    const most = Math.min(2 ** (kind === 'integer' ? bits - 1 : bits) - 1, Number.MAX_SAFE_INTEGER)
    if (!Number.isInteger(value) || value < least || value > most) {
      throw new RangeError(
        `launch: ${this.signature.name}: '${parameter.name}' must be a whole number from ${least} to ${most}, not ${value}`,
      )
    }
    if (byteLength === 1) this.view.setUint8(byteOffset, value)
    else if (byteLength === 2) this.view.setUint16(byteOffset, value, true)
    else if (byteLength === 4) this.view.setUint32(byteOffset, value, true)
    else this.setWide(byteOffset, value)
  }

  /** 64 bits from a number, in two's complement. */
  private setWide(byteOffset: number, value: number): void {
    this.view.setUint32(byteOffset, value % 2 ** 32, true)
    this.view.setUint32(byteOffset + 4, Math.floor(value / 2 ** 32), true)
  }

  private mismatch(parameter: KernelParameter, what: string): TypeError {
    return new TypeError(`launch: ${this.signature.name}: parameter '${parameter.name}' ${what}`)
  }
}

function extentOf(extent: Extent, argument: string): readonly [number, number, number] {
  const [x, y = 1, z = 1] = typeof extent === 'number' ? [extent] : extent
  return [countOf(x, argument, 1), countOf(y, argument, 1), countOf(z, argument, 1)]
}

function countOf(value: number, argument: string, least: number): number {
  if (!Number.isInteger(value) || value < least || value > 2 ** 31 - 1) {
    throw new RangeError(`launch: ${argument} must be whole numbers from ${least} to 2^31 - 1, not ${describe(value)}`)
  }
  return value
}
