// The host memory for arguments that libcuda takes by address: results, structs, PTX compiler options and kernel
// arguments. bound-library.ts has one buffer for each driver object. koffi's out-parameters, its structs and a
// BigInt for each address would cost more than the driver calls, so the address of the buffer is taken once. Each
// call copies its results out before it returns, so one buffer serves all calls of a thread.

import { OutOfRangeError, WrongTypeError } from '../../base/argument-errors.js'
import { assert } from '../../base/assert.js'
import { describe } from '../../base/bytes.js'
import type { Bytes } from '../../base/typed-arrays.js'
import { exact, int, uint } from '../../libraries/arguments.js'
import {
  CU_MEM_ALLOCATION_TYPE_PINNED,
  CU_MEM_LOCATION_TYPE_DEVICE,
  CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
  JIT_OPTION,
} from '../constants.js'
import { type KernelArguments, type MemPoolProperties, MOST_BATCHED_COPIES } from '../driver.js'

// Byte offsets of the parts, in the order of the buffer.
const FIRST = 0
const SECOND = FIRST + 8
// CUmemAllocationProp: type, handle types, location type, location id, ..., allocation flags, 32 bytes
const ALLOCATION = SECOND + 8
const GPU_DIRECT_RDMA = ALLOCATION + 25 // allocFlags.gpuDirectRDMACapable, a byte
// CUmemPoolProps: allocation type, handle types, location, a pointer, largest size, ... 88 bytes
const POOL = ALLOCATION + 32
const EXPORTED = POOL + 88 // CUmemPoolPtrExportData: 64 bytes
const ACCESS = EXPORTED + 64 // CUmemAccessDesc[]: location type, location id, flags, 12 bytes each
const MOST_ACCESSES = 128
const JIT_OPTIONS = ACCESS + 12 * MOST_ACCESSES // CUjit_option[2]
const JIT_VALUES = JIT_OPTIONS + 8 // void *[2]
const TEXT = JIT_VALUES + 16
const POINTERS = TEXT + 8192
const ARGUMENTS = POINTERS + 8 * 4096
// A batch of copies: addresses of targets and sources, sizes, the attributes and the first copy that they are for
const TARGETS = ARGUMENTS + 32768
const SOURCES = TARGETS + 8 * MOST_BATCHED_COPIES
const SIZES = SOURCES + 8 * MOST_BATCHED_COPIES
const COPY_ATTRIBUTES = SIZES + 8 * MOST_BATCHED_COPIES // CUmemcpyAttributes: source order, two locations, flags
const FIRST_COPY = COPY_ATTRIBUTES + 24
const SCRATCH_BYTES = FIRST_COPY + 8

const TWO_32 = 2 ** 32

/** One buffer, with a method for each kind of argument and result. */
export class MarshallingBuffer {
  /** addresses for libcuda: of two results, of the text, of the compiler options and of exported bytes */
  readonly first: number
  readonly second: number
  readonly text: number
  readonly textBytes = POINTERS - TEXT
  readonly jitOptions: number
  readonly jitValues: number
  readonly exported: number
  /** of the arrays of a batch of copies, its attributes, and the index of the first copy, which is 0 */
  readonly targets: number
  readonly sources: number
  readonly sizes: number
  readonly copyAttributes: number
  readonly firstCopy: number

  private readonly bytes = new Uint8Array(SCRATCH_BYTES)
  private readonly words = new Uint32Array(this.bytes.buffer)
  private readonly floats = new Float32Array(this.bytes.buffer)
  private readonly address: number

  constructor(addressOf: (view: ArrayBufferView) => number) {
    this.address = addressOf(this.bytes)
    this.first = this.address + FIRST
    this.second = this.address + SECOND
    this.text = this.address + TEXT
    this.jitOptions = this.address + JIT_OPTIONS
    this.jitValues = this.address + JIT_VALUES
    this.exported = this.address + EXPORTED
    this.targets = this.address + TARGETS
    this.sources = this.address + SOURCES
    this.sizes = this.address + SIZES
    this.copyAttributes = this.address + COPY_ATTRIBUTES
    this.firstCopy = this.address + FIRST_COPY

    const { words } = this
    words[ALLOCATION / 4] = CU_MEM_ALLOCATION_TYPE_PINNED
    words[COPY_ATTRIBUTES / 4] = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM
    words[ALLOCATION / 4 + 2] = CU_MEM_LOCATION_TYPE_DEVICE
    words[JIT_OPTIONS / 4] = JIT_OPTION.CU_JIT_ERROR_LOG_BUFFER
    words[JIT_OPTIONS / 4 + 1] = JIT_OPTION.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES
  }

  /** The first result as a C int. */
  int(): number {
    return this.words[FIRST / 4] | 0
  }

  /** The first result as a C float. */
  float(): number {
    return this.floats[FIRST / 4]
  }

  /** Both results as the 16 bytes of a CUuuid. */
  uuid(): Bytes {
    return this.bytes.slice(FIRST, FIRST + 16)
  }

  /** The second result as a C int. */
  intSecond(): number {
    return this.words[SECOND / 4] | 0
  }

  /** The first result as a handle, an address or a size. */
  exact(): number {
    return this.exactAt(FIRST / 4)
  }

  /** The second result as a size. */
  exactSecond(): number {
    return this.exactAt(SECOND / 4)
  }

  private exactAt(index: number): number {
    const high = this.words[index + 1]
    assert(high < 2 ** 21, 'handles, addresses and sizes should be below 2^53')
    return high * TWO_32 + this.words[index]
  }

  /** The first result as an amount: `Infinity` for 2^64 - 1, CUDA's "no limit". */
  amount(): number {
    const [low, high] = this.words
    return low === TWO_32 - 1 && high === TWO_32 - 1 ? Number.POSITIVE_INFINITY : high * TWO_32 + low
  }

  /** Writes an amount at `first`: 2^64 - 1 for `Infinity`. */
  placeAmount(amount: number): void {
    if (amount === Number.POSITIVE_INFINITY) this.words.fill(TWO_32 - 1, 0, 2)
    else this.place(0, amount)
  }

  /** Writes an address at `first`, and a size at `second`. */
  placeRange(ptr: number, bytes: number): void {
    this.place(FIRST / 4, ptr)
    this.place(SECOND / 4, bytes)
  }

  /** Writes one copy of a batch. */
  placeCopy(index: number, target: number, source: number, bytes: number): void {
    this.place(TARGETS / 4 + 2 * index, target)
    this.place(SOURCES / 4 + 2 * index, source)
    this.place(SIZES / 4 + 2 * index, bytes)
  }

  /** The address of a CUmemAllocationProp for memory on `device` that can be exported as `handleTypes`. */
  allocationOn(device: number, handleTypes: number, gpuDirectRdma: boolean): number {
    this.words[ALLOCATION / 4 + 1] = uint(handleTypes, 'handleTypes')
    this.words[ALLOCATION / 4 + 3] = int(device, 'device')
    this.bytes[GPU_DIRECT_RDMA] = Number(gpuDirectRdma)
    return this.address + ALLOCATION
  }

  /** The address of a CUmemPoolProps. Fields that are not written here stay 0. */
  poolOf(properties: MemPoolProperties): number {
    this.words[POOL / 4] = int(properties.allocationType, 'allocationType')
    this.words[POOL / 4 + 1] = uint(properties.handleTypes, 'handleTypes')
    this.words[POOL / 4 + 2] = int(properties.locationType, 'locationType')
    this.words[POOL / 4 + 3] = int(properties.locationId, 'locationId')
    this.place(POOL / 4 + 6, exact(properties.maxBytes, 'maxBytes'))
    return this.address + POOL
  }

  /** The address of a CUmemAccessDesc for each device, all with the same flags. */
  accessFrom(devices: readonly number[], flags: number): number {
    if (!Array.isArray(devices)) throw new WrongTypeError(`devices must be a list of devices, not ${describe(devices)}`)
    if (devices.length > MOST_ACCESSES) {
      throw new OutOfRangeError(`devices must be at most ${MOST_ACCESSES}, not ${devices.length}`)
    }
    for (let i = 0; i < devices.length; i++) {
      const device = int(devices[i], 'device')
      this.placeAccess(i, CU_MEM_LOCATION_TYPE_DEVICE, device, uint(flags, 'flags'))
    }
    return this.address + ACCESS
  }

  /** The address of one CUmemAccessDesc, which begins with a CUmemLocation. */
  accessOf(locationType: number, locationId: number, flags: number): number {
    this.placeAccess(0, int(locationType, 'locationType'), int(locationId, 'locationId'), uint(flags, 'flags'))
    return this.address + ACCESS
  }

  /** A copy of the bytes that the driver wrote at `exported`. */
  readExported(): Bytes {
    return this.bytes.slice(EXPORTED, ACCESS)
  }

  /** Writes the bytes of an export of another process at `exported`. */
  placeExported(exported: Uint8Array): void {
    if (!(exported instanceof Uint8Array)) {
      throw new WrongTypeError(`exported must be the Uint8Array of cuMemPoolExportPointer, not ${describe(exported)}`)
    }
    if (exported.length !== ACCESS - EXPORTED) {
      throw new OutOfRangeError(`exported must be the ${ACCESS - EXPORTED} bytes of an export, not ${exported.length}`)
    }
    this.bytes.set(exported, EXPORTED)
  }

  /** Empties the text, and resets the compiler options, where the driver has written the length of its log. */
  clearText(): void {
    this.bytes[TEXT] = 0
    this.place(JIT_VALUES / 4, this.text)
    this.place(JIT_VALUES / 4 + 2, this.textBytes)
  }

  /** The text that the driver wrote at `text`. */
  readText(): string {
    const end = this.bytes.indexOf(0, TEXT)
    return Buffer.from(this.bytes.buffer, TEXT, end - TEXT)
      .toString()
      .trim()
  }

  /** Writes kernel arguments, and returns the address of the array of their addresses. */
  placeArguments({ bytes, offsets }: KernelArguments): number {
    if (bytes.length > SCRATCH_BYTES - ARGUMENTS || offsets.length > (ARGUMENTS - POINTERS) / 8) {
      throw new OutOfRangeError(
        `a kernel takes at most 32 KiB in 4096 arguments, not ${bytes.length} in ${offsets.length}`,
      )
    }
    this.bytes.set(bytes, ARGUMENTS)
    for (let i = 0; i < offsets.length; i++) {
      const offset = offsets[i]
      if (!(offset >= 0 && offset < bytes.length)) {
        throw new OutOfRangeError(`offset ${offset} of kernel argument ${i} is outside the ${bytes.length} bytes given`)
      }
      this.place(POINTERS / 4 + 2 * i, this.address + ARGUMENTS + offset)
    }
    return this.address + POINTERS
  }

  private placeAccess(index: number, locationType: number, locationId: number, flags: number): void {
    const word = ACCESS / 4 + 3 * index
    this.words[word] = locationType
    this.words[word + 1] = locationId
    this.words[word + 2] = flags
  }

  private place(index: number, value: number): void {
    this.words[index] = value // keeps the lower 32 bits
    this.words[index + 1] = value / TWO_32
  }
}
