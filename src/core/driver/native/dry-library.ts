// A stand-in for libcuda without a device, on which core/device/warm-up.ts runs pools before there is a context.
// Addresses and handles are numbers that count up; nothing lies behind them. Every second question about work says that
// it is complete.

import { MiB } from '../../base/bytes.js'
import { RESULT } from '../constants.js'
import type { FunctionName } from '../table.js'
import type { DriverFunction, Library } from './library.js'

/** The addresses that the library reports for host memory begin so far apart. */
const HOST_SPAN = 2 ** 32
const FIRST_ADDRESS = 2 ** 41
/** As large as those of libcuda, which are addresses: V8 compiles code again that has met only small numbers. */
const FIRST_HANDLE = 2 ** 46
const GRANULE_BYTES = 2 * MiB

export class DryLibrary implements Library {
  readonly path = 'no library'
  readonly pages = null
  private readonly hosts: DataView[] = []
  private nextHandle = FIRST_HANDLE
  private nextAddress = FIRST_ADDRESS
  private questions = 0

  /**
   * A library `isBound` has bound functions. Code that calls functions of both kinds is not compiled for either, and
   * so stays compiled when it calls those of libcuda.
   */
  constructor(
    private readonly deviceBytes: number,
    private readonly isBound = false,
  ) {}

  bind(name: FunctionName): DriverFunction {
    const answer = this.answerTo(name)
    return this.isBound ? answer.bind(this) : answer
  }

  private answerTo(name: FunctionName): DriverFunction {
    switch (name) {
      case 'cuDeviceGetCount':
      case 'cuDeviceGetAttribute': // most attributes tell whether the device can do something
        return result => this.write(result, 1)
      case 'cuDeviceTotalMem':
        return result => this.write(result, this.deviceBytes)
      case 'cuMemGetInfo':
        return (free, total) => this.write(free, this.deviceBytes) + this.write(total, this.deviceBytes)
      case 'cuMemGetAllocationGranularity':
        return result => this.write(result, GRANULE_BYTES)
      case 'cuMemAddressReserve':
        return (result, bytes) => this.write(result, this.reserve(bytes as number))
      case 'cuStreamIsCapturing':
        return (_stream, result) => this.write(result, 0)
      case 'cuDevicePrimaryCtxRetain':
      case 'cuStreamCreate':
      case 'cuEventCreate':
      case 'cuMemCreate':
        return result => this.write(result, this.nextHandle++)
      case 'cuEventQuery':
        return () => (++this.questions % 2 === 0 ? RESULT.CUDA_SUCCESS : RESULT.CUDA_ERROR_NOT_READY)
      default:
        return () => RESULT.CUDA_SUCCESS
    }
  }

  start(_name: FunctionName, _args: readonly number[], _done: (code: number) => void): void {
    throw new Error('a dry library has no threads')
  }

  addressOf = (view: ArrayBufferView): number =>
    HOST_SPAN * this.hosts.push(new DataView(view.buffer, view.byteOffset, view.byteLength))

  textAt(): string {
    return ''
  }

  private reserve(bytes: number): number {
    const address = this.nextAddress
    this.nextAddress += bytes
    return address
  }

  private write(address: unknown, value: number): number {
    const host = Math.floor((address as number) / HOST_SPAN)
    const offset = (address as number) - HOST_SPAN * host
    const view = this.hosts[host - 1]
    view.setUint32(offset, value, true) // keeps the lower 32 bits
    view.setUint32(offset + 4, value / 2 ** 32, true)
    return RESULT.CUDA_SUCCESS
  }
}
