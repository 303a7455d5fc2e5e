// A stand-in for libcuda in JavaScript, for tests of the native driver without a GPU.

import { RESULT } from '../constants.js'
import type { FunctionName } from '../table.js'
import type { DriverFunction, Library } from './library.js'

/** The address that the stand-in reports for the driver's marshalling buffer. */
export const BASE = 0x7f00_0000_0000

/** A library in which `functions` answer the calls; they read and write the marshalling buffer by address. */
export class FakeLibrary implements Library {
  readonly path = 'a stand-in'
  readonly pages = null
  readonly binds: FunctionName[] = []
  finish: () => void = () => {}
  memory: DataView = new DataView(new ArrayBuffer(0))

  constructor(private readonly functions: Partial<Record<FunctionName, DriverFunction>>) {}

  bind(name: FunctionName): DriverFunction {
    this.binds.push(name)
    return this.functions[name] ?? (() => RESULT.CUDA_SUCCESS)
  }

  /** Calls the function at once, and `done` when the test calls `finish`. */
  start(name: FunctionName, args: readonly number[], done: (code: number) => void): void {
    const code = this.bind(name)(...args)
    this.finish = () => done(code)
  }

  /** The first view is the one that calls write to. */
  addressOf = (view: ArrayBufferView): number => {
    if (this.memory.byteLength === 0) this.memory = new DataView(view.buffer, view.byteOffset, view.byteLength)
    return BASE
  }

  textAt = (address: number): string => `text at ${address}`

  write(address: unknown, value: bigint): number {
    this.memory.setBigUint64((address as number) - BASE, value, true)
    return RESULT.CUDA_SUCCESS
  }

  read(address: unknown): bigint {
    return this.memory.getBigUint64((address as number) - BASE, true)
  }

  writeInt(address: unknown, value: number): number {
    this.memory.setInt32((address as number) - BASE, value, true)
    return RESULT.CUDA_SUCCESS
  }

  /** `count` C ints */
  ints(address: unknown, count: number): number[] {
    return Array.from({ length: count }, (_, i) => this.memory.getInt32((address as number) - BASE + 4 * i, true))
  }
}
