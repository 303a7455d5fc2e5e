import { OutOfRangeError, WrongTypeError } from '../base/argument-errors.js'
import { describe } from '../base/bytes.js'
import { CudaError, PoolError } from '../base/errors.js'
import { showAsText } from '../base/readable.js'
import { bfloat16, float16 } from '../base/small-floats.js'
import { isUint8Array } from '../base/typed-arrays.js'
import { FUNCTION_ATTRIBUTE, RESULT } from '../driver/constants.js'
import { type Context, unreachable } from '../driver/context.js'
import type { KernelArguments } from '../driver/driver.js'
import type { Holding } from '../order/holding.js'
import { checkIsStream, type Stream } from '../order/stream.js'
import { type Extent, type Extents, LaunchLimits } from './launch-limits.js'
import { launchStream, type StreamOrdered } from './launch-stream.js'
import { leastOf, mostOf, wantedFor } from './parameter-values.js'
import type { KernelParameter, KernelSignature } from './ptx.js'

/** The shape of a launch, and its stream. The default of each option is in parentheses. */
export interface LaunchOptions {
  /** number of blocks, in one to three dimensions */
  readonly grid: Extent
  /** number of threads in a block, in one to three dimensions */
  readonly block: Extent
  /** dynamic shared memory of a block, in bytes (0) */
  readonly sharedBytes?: number
  /**
   * stream of the launch (that of the buffers among the arguments; of several streams one that comes after the work on
   * all others; without buffers the device's default stream)
   */
  readonly stream?: Stream | undefined
  /**
   * all blocks run at the same time, so that they can wait for each other (`grid.sync()`); the grid must fit the
   * device (false)
   */
  readonly cooperative?: boolean
}

/** How much of a kernel runs on a device at the same time. */
export interface Occupancy {
  /** blocks that run on a multiprocessor at the same time */
  readonly blocksPerMultiprocessor: number
  /** blocks on the whole device, which is the largest grid of a cooperative launch */
  readonly blocks: number
}

/** Resources that a launch of a kernel takes, as the compiler decided. */
export interface KernelResources {
  /** most threads that a block can have with that number of registers */
  readonly mostBlockThreads: number
  /** registers of each thread */
  readonly registers: number
  /** static shared memory of each block, in bytes */
  readonly sharedBytes: number
  /** local memory of each thread, in bytes, for values that do not fit its registers */
  readonly localBytes: number
}

/** Device memory as a kernel argument: any buffer or array. */
export interface DevicePointer extends StreamOrdered {
  /** the device address */
  readonly ptr: number
  /**
   * The device address, for work that `call` is about to submit; throws if the memory cannot be used now. `ptr`, if it
   * is missing.
   */
  addressFor?(call: string): number
  /** @internal */
  readonly context?: Context
  /**
   * whether kernels of another context can use the memory; without this method they cannot
   * @internal
   */
  reachableFrom?(context: Context): boolean
  /** Called before a launch on `stream` that uses the memory; throws if that would be a mistake. */
  noteUse?(stream: Stream, call: string): void
}

/**
 * An argument of a kernel: device memory, a number, a bigint or boolean for an integer, or the bytes of a structure
 * that is passed by value.
 */
export type KernelArgument = DevicePointer | number | bigint | boolean | Uint8Array

/** The code that a kernel is part of: a `Module`. */
export interface LoadedCode {
  readonly context: Context
  /** The driver's handle. Throws PoolError, in the name of `call`, for unloaded code. */
  openHandle(call: string): number
  /** Keeps the code loaded for a capture with these holdings, and for its graph. */
  holdFor(holdings: Set<Holding>): void
}

/** A function that runs on the device. Made by `module.kernel(name)`. */
export class Kernel {
  private readonly bytes: Uint8Array
  private readonly view: DataView
  private readonly args: KernelArguments
  /** least and most integer that each parameter takes */
  private readonly least: readonly number[]
  private readonly most: readonly number[]
  private readonly limits: LaunchLimits
  /** of the launch under way; the driver has read it when the call returns */
  private readonly shape: { grid: Extents; block: Extents; sharedBytes: number }
  /** dynamic shared memory that the driver allows at present; -1 until a launch first asks for any */
  private allowedSharedBytes = -1

  constructor(
    private readonly module: LoadedCode,
    /** @internal */
    readonly signature: KernelSignature,
    private readonly handle: number,
    private readonly defaultStream: Stream,
  ) {
    this.bytes = new Uint8Array(new ArrayBuffer(Math.max(8, signature.byteLength)))
    this.view = new DataView(this.bytes.buffer)
    this.args = { bytes: this.bytes, offsets: signature.parameters.map(parameter => parameter.byteOffset) }
    this.least = signature.parameters.map(leastOf)
    this.most = signature.parameters.map(mostOf)
    this.limits = LaunchLimits.of(module.context)
    this.shape = { grid: [1, 1, 1], block: [1, 1, 1], sharedBytes: 0 }
  }

  /**
   * Submits the kernel to a stream and returns at once. Arguments are checked against the parameters that the code
   * declares, and the shape against the device's limits, before the driver is called. Throws TypeError or RangeError
   * that name the mistake, and PoolError for a closed module or stream, or memory of another device. Without `stream`,
   * throws PoolError if the order of the buffers' streams is not known, or during a capture if none is captured.
   */
  launch(options: LaunchOptions, ...values: readonly KernelArgument[]): void {
    const { module, shape } = this
    module.openHandle('launch')
    if (typeof options !== 'object' || options === null) throw noOptions(options)
    for (const key in options) if (!isLaunchOption(key)) throw unknownOption(key)
    const { cooperative = false } = options
    if (typeof cooperative !== 'boolean')
      throw new WrongTypeError(`launch: cooperative must be true or false, not ${describe(cooperative)}`)
    const { parameters } = this.signature
    if (values.length !== parameters.length) throw this.wrongCount(values.length)
    for (let index = 0; index < values.length; index++) this.set(index, values[index])
    const { stream = launchStream(this.defaultStream, values) } = options
    checkIsStream('launch', stream)
    stream.checkUsable('launch')
    if (stream.context !== module.context) {
      throw new PoolError('launch: the stream belongs to another device', 'ERR_OTHER_DEVICE')
    }
    this.limits.setGrid(shape.grid, options.grid, 'launch')
    this.limits.setBlock(shape.block, options.block, 'launch')
    shape.sharedBytes = options.sharedBytes ?? 0
    if (shape.sharedBytes !== 0) this.allowShared(shape.sharedBytes, 'launch')
    if (cooperative) this.checkFits()
    for (let index = 0; index < values.length; index++) {
      const value = values[index]
      if (typeof value === 'object' && 'noteUse' in value) value.noteUse?.(stream, 'launch')
    }
    if (stream.capture !== null) module.holdFor(stream.capture.holdings)
    const driver = module.context.activate()
    try {
      stream.submit('launch', handle => {
        if (cooperative) driver.cuLaunchCooperativeKernel(this.handle, shape, handle, this.args)
        else driver.cuLaunchKernel(this.handle, shape, handle, this.args)
      })
    } catch (error) {
      throw this.explained(error)
    }
  }

  /**
   * How many blocks with that many threads, and that many bytes of dynamic shared memory each, run at the same time.
   * Throws as `launch`.
   */
  occupancy(block: Extent, sharedBytes = 0): Occupancy {
    this.module.openHandle('occupancy')
    this.limits.setBlock(this.shape.block, block, 'occupancy')
    this.allowShared(sharedBytes, 'occupancy')
    return this.occupancyOf(this.shape.block, sharedBytes)
  }

  /**
   * The number of threads in a block that keeps the device busiest, and how many such blocks fill it. `sharedBytes`
   * is a block's dynamic shared memory. Throws as `launch`.
   */
  suggestShape(sharedBytes = 0): { readonly grid: number; readonly block: number } {
    this.module.openHandle('suggestShape')
    this.allowShared(sharedBytes, 'suggestShape')
    const driver = this.module.context.activate()
    const { blocks, blockThreads } = driver.cuOccupancyMaxPotentialBlockSize(this.handle, sharedBytes)
    return { grid: blocks, block: blockThreads }
  }

  /** The registers and memory that the compiler chose. Throws PoolError for a closed module. */
  resources(): KernelResources {
    this.module.openHandle('resources')
    return {
      mostBlockThreads: this.attribute('CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK'),
      registers: this.attribute('CU_FUNC_ATTRIBUTE_NUM_REGS'),
      sharedBytes: this.attribute('CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES'),
      localBytes: this.attribute('CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES'),
    }
  }

  private attribute(name: keyof typeof FUNCTION_ATTRIBUTE): number {
    return this.module.context.activate().cuFuncGetAttribute(FUNCTION_ATTRIBUTE[name], this.handle)
  }

  private occupancyOf(block: Extents, sharedBytes: number): Occupancy {
    const driver = this.module.context.activate()
    const threads = block[0] * block[1] * block[2]
    const each = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(this.handle, threads, sharedBytes)
    return { blocksPerMultiprocessor: each, blocks: each * this.limits.multiprocessors }
  }

  private checkFits(): void {
    const { grid, block, sharedBytes } = this.shape
    if (!this.limits.cooperative) {
      throw new PoolError('launch: this device has no cooperative launches', 'ERR_NOT_SUPPORTED')
    }
    const { blocks } = this.occupancyOf(block, sharedBytes)
    const wanted = grid[0] * grid[1] * grid[2]
    if (wanted <= blocks) return
    throw new OutOfRangeError(
      `launch: a cooperative grid of ${wanted} blocks is too large: ${blocks} of this kernel run on the device at the same time`,
    )
  }

  /** Checks an amount of dynamic shared memory. Above 48 KiB the driver must be asked once to allow it. */
  private allowShared(sharedBytes: number, call: string): void {
    if (Number.isInteger(sharedBytes) && sharedBytes >= 0 && sharedBytes <= this.allowedSharedBytes) return
    const fixed = sharedBytes === 0 ? 0 : this.attribute('CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES')
    const most = this.limits.mostSharedBytes - fixed
    if (!Number.isInteger(sharedBytes) || sharedBytes < 0 || sharedBytes > most) {
      const beside = fixed === 0 ? '' : ` beside the ${fixed} that the kernel itself declares`
      throw new OutOfRangeError(
        `${call}: sharedBytes must be a whole number from 0 to ${most}, the device's limit${beside}, not ${describe(sharedBytes)}`,
      )
    }
    const freely = this.limits.sharedBytes - fixed
    if (sharedBytes > freely) {
      const attribute = FUNCTION_ATTRIBUTE.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
      this.module.context.activate().cuFuncSetAttribute(this.handle, attribute, sharedBytes)
    }
    if (sharedBytes !== 0) this.allowedSharedBytes = Math.max(sharedBytes, freely)
  }

  /**
   * The driver's error; if the block has more threads than the kernel's registers suffice for, an error that says
   * that.
   */
  private explained(error: unknown): unknown {
    if (!(error instanceof CudaError) || error.result !== RESULT.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES) return error
    const { mostBlockThreads, registers } = this.resources()
    const threads = this.shape.block.reduce((product, size) => product * size, 1)
    if (threads <= mostBlockThreads) return error
    return new OutOfRangeError(
      `launch: ${this.signature.name} takes ${registers} registers a thread, so that a block has at most ${mostBlockThreads} threads, not ${threads}`,
    )
  }

  private wrongCount(count: number): TypeError {
    const { name, parameters } = this.signature
    const wanted = parameters.map(parameter => parameter.name).join(', ')
    return new WrongTypeError(`launch: ${name} takes ${parameters.length} arguments (${wanted}), not ${count}`)
  }

  private set(index: number, value: KernelArgument): void {
    const parameter = this.signature.parameters[index]
    const { byteOffset, byteLength, kind } = parameter
    if (typeof value === 'number') {
      this.setNumber(parameter, value, this.least[index], this.most[index])
    } else if (typeof value === 'bigint') {
      this.setBigInt(parameter, value)
    } else if (typeof value === 'boolean' && (kind === 'integer' || kind === 'unsigned')) {
      this.setNumber(parameter, Number(value), 0, 1)
    } else if (isUint8Array(value) && (kind === 'bytes' || kind === 'untyped' || kind.endsWith('float16'))) {
      if (value.byteLength !== byteLength) {
        throw this.mismatch(parameter, `needs ${byteLength} bytes, not ${value.byteLength}`)
      }
      this.bytes.set(value, byteOffset)
    } else if (typeof value === 'object' && value !== null && 'ptr' in value) {
      if (kind === 'bytes') throw this.mismatch(parameter, `needs a Uint8Array of ${byteLength} bytes, not a buffer`)
      if (byteLength !== 8 || kind === 'float') throw this.mismatch(parameter, 'is no pointer; pass a number')
      const address = value.addressFor?.('launch') ?? value.ptr
      if (!Number.isSafeInteger(address) || address < 0) {
        throw this.mismatch(parameter, `cannot take a ptr of ${describe(address)}; pass a buffer or an address`)
      }
      const { context } = this.module
      if (value.context !== undefined && value.context !== context && value.reachableFrom?.(context) !== true) {
        throw unreachable(`launch: ${this.signature.name}: the buffer for '${parameter.name}'`, context, value.context)
      }
      this.setWide(byteOffset, address)
    } else throw this.mismatch(parameter, `cannot take ${describe(value)}; pass ${wantedFor(parameter)}`)
  }

  private setNumber(parameter: KernelParameter, value: number, least: number, most: number): void {
    const { byteOffset, byteLength, kind } = parameter
    if (kind === 'bytes' || kind === 'untyped') throw this.mismatch(parameter, `needs ${wantedFor(parameter)}`)
    if (kind === 'float') {
      if (byteLength === 4) this.view.setFloat32(byteOffset, value, true)
      else this.view.setFloat64(byteOffset, value, true)
      return
    }
    if (kind === 'float16' || kind === 'bfloat16') {
      this.view.setUint16(byteOffset, (kind === 'float16' ? float16 : bfloat16).bitsOf(value), true)
      return
    }
    this.setWhole(parameter, value, least, most)
  }

  private setWhole(
    { name, byteOffset, byteLength }: KernelParameter,
    value: number,
    least: number,
    most: number,
  ): void {
    if (!Number.isInteger(value) || value < least || value > most) {
      throw new OutOfRangeError(
        `launch: ${this.signature.name}: '${name}' must be a whole number from ${least} to ${most}, not ${value}${byteLength === 8 ? '; pass a bigint for a larger one' : ''}`,
      )
    }
    if (byteLength === 1) this.view.setUint8(byteOffset, value)
    else if (byteLength === 2) this.view.setUint16(byteOffset, value, true)
    else if (byteLength === 4) this.view.setUint32(byteOffset, value, true)
    else this.setWide(byteOffset, value)
  }

  private setBigInt(parameter: KernelParameter, value: bigint): void {
    const { name, byteOffset, byteLength, kind } = parameter
    if (kind !== 'integer' && kind !== 'unsigned' && kind !== 'untyped')
      throw this.mismatch(parameter, `is no integer; pass ${wantedFor(parameter)}`)
    const bits = byteLength * 8
    const most = BigInt.asUintN(kind === 'integer' ? bits - 1 : bits, -1n)
    const least = -(1n << BigInt(bits - 1))
    if (value < least || value > most) {
      throw new OutOfRangeError(
        `launch: ${this.signature.name}: '${name}' must be an integer from ${least} to ${most}, not ${value}`,
      )
    }
    if (byteLength === 8) this.view.setBigUint64(byteOffset, value, true)
    else this.setWhole(parameter, Number(value), Number(least), Number(most))
  }

  /** Stores a number as 64 bits, in two's complement. */
  private setWide(byteOffset: number, value: number): void {
    this.view.setUint32(byteOffset, value, true) // keeps the lower 32 bits
    this.view.setUint32(byteOffset + 4, Math.floor(value / 2 ** 32), true)
  }

  private mismatch(parameter: KernelParameter, what: string): TypeError {
    return new WrongTypeError(`launch: ${this.signature.name}: parameter '${parameter.name}' ${what}`)
  }

  /** One line for people, such as `Kernel { scale, 3 parameters }`; console.log shows it. */
  toString(): string {
    const { name, parameters } = this.signature
    return `Kernel { ${name}, ${parameters.length} ${parameters.length === 1 ? 'parameter' : 'parameters'} }`
  }

  /** The plain values that JSON.stringify writes. */
  toJSON(): object {
    const { name, parameters } = this.signature
    return { kernel: name, device: this.module.context.ordinal, parameters: parameters.map(each => each.name) }
  }
}

function noOptions(options: unknown): TypeError {
  return new WrongTypeError(`launch: options must be an object such as { grid, block }, not ${describe(options)}`)
}

/** A switch, since every launch calls this: a list takes four times as long. */
function isLaunchOption(key: string): boolean {
  switch (key) {
    case 'grid':
    case 'block':
    case 'sharedBytes':
    case 'stream':
    case 'cooperative':
      return true
    default:
      return false
  }
}

function unknownOption(key: string): TypeError {
  return new WrongTypeError(
    `launch: unknown option '${key}'; the options are grid, block, sharedBytes, stream, cooperative`,
  )
}

showAsText(Kernel)
