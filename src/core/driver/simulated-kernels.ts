// Kernels of the simulated device: TypeScript functions that programs register under the names of PTX entries.
// Other houses register theirs here; simulated/kernels/ launches them. A simulated device reads from PTX
// only the names and parameter counts of its entries. A function runs once a launch and loops over the threads
// itself.

import { OutOfRangeError, WrongTypeError } from '../base/argument-errors.js'
import { describe } from '../base/bytes.js'
import { showAsText } from '../base/readable.js'
import { bfloat16, float16 } from '../base/small-floats.js'
import { isUint8Array } from '../base/typed-arrays.js'
import type { KernelArguments, LaunchShape } from './driver.js'
import type { DeviceMemory } from './simulated/memory/device-memory.js'

export type { DeviceMemory }

/** The argument of a simulated kernel: the shape of the launch, its arguments, and the memory of the device. */
export interface SimulatedLaunch {
  /** blocks in the grid and threads in a block */
  readonly shape: LaunchShape
  /** the arguments of the launch */
  readonly args: LaunchArguments
  /** the memory of the device */
  readonly memory: DeviceMemory
}

/**
 * Does the work of all threads of one launch, and cannot call the driver. An exception ends the context, as a fault
 * does on a GPU, and is the `cause` of the CudaError. A promise is such an exception, too.
 */
export type SimulatedKernel = (launch: SimulatedLaunch) => void

const registry = new Map<string, SimulatedKernel>()

/** Runs `kernel` for the entry `name` of any PTX on simulated devices. A second registration replaces the first. */
export function registerSimulatedKernel(name: string, kernel: SimulatedKernel): void {
  if (typeof name !== 'string' || name === '')
    throw new WrongTypeError(`name must be an entry's name, not ${describe(name)}`)
  if (typeof kernel !== 'function') throw new WrongTypeError(`kernel must be a function, not ${describe(kernel)}`)
  registry.set(name, kernel)
}

/** The function registered under `name`. */
export function findSimulatedKernel(name: string): SimulatedKernel | undefined {
  return registry.get(name)
}

/** The number of threads in a launch of this shape. */
export function threadCount(shape: LaunchShape): number {
  if (!Array.isArray(shape?.grid) || !Array.isArray(shape.block)) {
    throw new WrongTypeError(`threadCount: shape must be the shape of a launch, not ${describe(shape)}`)
  }
  return [...shape.grid, ...shape.block].reduce((product, size) => product * size, 1)
}

/** The arguments of one launch, copied at the launch as CUDA does. A missing argument throws RangeError. */
export class LaunchArguments {
  private readonly view: DataView
  private readonly offsets: readonly number[]

  constructor(args: KernelArguments) {
    if (!isUint8Array(args?.bytes) || !Array.isArray(args.offsets)) {
      throw new WrongTypeError(`LaunchArguments: args must be the arguments of a launch, not ${describe(args)}`)
    }
    this.view = new DataView(args.bytes.slice().buffer)
    this.offsets = [...args.offsets]
  }

  /** number of arguments */
  get count(): number {
    return this.offsets.length
  }

  /** a device pointer, or another unsigned 64-bit value below 2^53 */
  pointer(index: number): number {
    return Number(this.view.getBigUint64(this.offsetOf(index), true))
  }

  /** An argument that is a signed number of 4 bytes. */
  int32(index: number): number {
    return this.view.getInt32(this.offsetOf(index), true)
  }

  /** An argument that is an unsigned number of 4 bytes. */
  uint32(index: number): number {
    return this.view.getUint32(this.offsetOf(index), true)
  }

  /** An argument that is a signed number of 8 bytes. */
  int64(index: number): bigint {
    return this.view.getBigInt64(this.offsetOf(index), true)
  }

  /** An argument that is an unsigned number of 8 bytes. */
  uint64(index: number): bigint {
    return this.view.getBigUint64(this.offsetOf(index), true)
  }

  /** An argument that is a bool, of 1 byte. */
  boolean(index: number): boolean {
    return this.view.getUint8(this.offsetOf(index)) !== 0
  }

  /** An argument that is a half, of 2 bytes. */
  float16(index: number): number {
    return float16.decode([this.view.getUint16(this.offsetOf(index), true)])[0]
  }

  /** An argument that is a bfloat16, of 2 bytes. */
  bfloat16(index: number): number {
    return bfloat16.decode([this.view.getUint16(this.offsetOf(index), true)])[0]
  }

  /** An argument that is a float of 4 bytes. */
  float32(index: number): number {
    return this.view.getFloat32(this.offsetOf(index), true)
  }

  /** An argument that is a float of 8 bytes. */
  float64(index: number): number {
    return this.view.getFloat64(this.offsetOf(index), true)
  }

  /** a copy of the first `byteLength` bytes of a structure passed by value */
  bytes(index: number, byteLength: number): Uint8Array {
    const offset = this.offsetOf(index)
    return new Uint8Array(this.view.buffer.slice(offset, offset + byteLength))
  }

  private offsetOf(index: number): number {
    if (index in this.offsets) return this.offsets[index]
    throw new OutOfRangeError(`the launch has ${this.count} arguments, none with index ${index}`)
  }

  /** One line for people, such as `LaunchArguments { 3 arguments }`; console.log shows it. */
  toString(): string {
    return `LaunchArguments { ${this.count} ${this.count === 1 ? 'argument' : 'arguments'} }`
  }

  /** The plain values that JSON.stringify writes. */
  toJSON(): object {
    return { count: this.count, bytes: [...new Uint8Array(this.view.buffer)] }
  }
}

/** The entries of a PTX text with the parameter count of each; null if the text is not PTX. */
export function parsePtxEntries(ptx: string): Map<string, number> | null {
  const code = ptx.replace(/\/\*[\s\S]*?\*\/|\/\/.*/g, '')
  if (!/^\s*\.version\s+\d+\.\d+/m.test(code)) return null
  const entries = new Map<string, number>()
  for (const [, name, parameters = ''] of code.matchAll(/\.entry\s+([\w$%]+)\s*(?:\(([^)]*)\))?/g)) {
    entries.set(name, parameters.match(/\.param\b/g)?.length ?? 0)
  }
  return entries.size === 0 ? null : entries
}

showAsText(LaunchArguments)
