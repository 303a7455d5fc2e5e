// Ranges, marks and names for profilers. All events are in a domain of their own, by which tools filter. Events are structs
// in one buffer, laid out by hand as 64-bit C has them: filled, passed, and used again for the next, since a tool copies
// what it wants during the call.

import { NoLibraryError } from '../base/errors.js'
import { exact, text as textOf } from './arguments.js'
import {
  type NvtxFunction,
  type NvtxFunctionName,
  type NvtxHandle,
  type NvtxLibrary,
  nvtxPaths,
  openNvtxLibrary,
} from './nvtx-library.js'

/** The name under which tools list the events. */
const DOMAIN = 'cuda-mempool'

const NVTX_VERSION = 3
const NVTX_MESSAGE_TYPE_ASCII = 1
const NVTX_PAYLOAD_TYPE_UNSIGNED_INT64 = 1
const NVTX_EXT_COMPATID_MEM = 0x0102
const NVTX_MEM_REGION_REF_TYPE_POINTER = 1

// Byte offsets in the buffer, each part behind the part before it.
const EVENT = 0 // nvtxEventAttributes: version, size, category, color type, color, payload type, 0, payload, message type, message
const EVENT_BYTES = 48
const REGIONS = EVENT + EVENT_BYTES // nvtxMemRegionsNameBatch: extension, size, 0, how many, size of each, where, 0
const REGIONS_BYTES = 40
const REGION = REGIONS + REGIONS_BYTES // nvtxMemRegionNameDesc: reference type, name type, address, name, category, 0
const REGION_BYTES = 32
const TEXT = REGION + REGION_BYTES
/** longer texts are cut */
const TEXT_BYTES = 256

/**
 * Opens NVTX: at `path`, or where it is usually found (LD_LIBRARY_PATH, then the CUDA toolkit). Open the device first:
 * some tools want CUDA to be initialised before. Throws NoLibraryError, which names what was tried.
 */
export function openNvtx(path?: string): Nvtx {
  return new Nvtx(openNvtxLibrary(path === undefined ? nvtxPaths() : [textOf(path, 'openNvtx: path')]))
}

/** What this program tells a profiler. Without one that runs it, every call returns at once. Made by `openNvtx`. */
export class Nvtx {
  /** the library that was opened */
  readonly path: string
  private readonly memory = new Uint8Array(new ArrayBuffer(TEXT + TEXT_BYTES))
  private readonly view = new DataView(this.memory.buffer)
  private readonly regions = this.memory.subarray(REGIONS)
  private readonly text = this.memory.subarray(TEXT, TEXT + TEXT_BYTES - 1)
  private readonly encoder = new TextEncoder()
  private readonly functions: Readonly<Record<Exclude<NvtxFunctionName, 'nvtxMemRegionsName'>, NvtxFunction>>
  private readonly nameRegions: NvtxFunction | NoLibraryError
  /** made with the first event, since NVTX looks for its tool then */
  private domain: NvtxHandle | null = null

  /** Throws NoLibraryError when the library lacks a function, so that no later call does. */
  constructor(library: NvtxLibrary) {
    this.path = library.path
    this.functions = {
      nvtxDomainCreateA: library.bind('nvtxDomainCreateA'),
      nvtxDomainMarkEx: library.bind('nvtxDomainMarkEx'),
      nvtxDomainRangePushEx: library.bind('nvtxDomainRangePushEx'),
      nvtxDomainRangePop: library.bind('nvtxDomainRangePop'),
      nvtxDomainRangeStartEx: library.bind('nvtxDomainRangeStartEx'),
      nvtxDomainRangeEnd: library.bind('nvtxDomainRangeEnd'),
      nvtxNameCuStreamA: library.bind('nvtxNameCuStreamA'),
    }
    this.nameRegions = optional(() => library.bind('nvtxMemRegionsName'))
    this.layOut(library.addressOf(this.memory))
  }

  /** A point in time, with a number that the tool shows beside it: an integer from 0, below 2^53. */
  mark(text: string, payload?: number): void {
    this.functions.nvtxDomainMarkEx(this.openDomain(), this.event(text, payload))
  }

  /** A range that begins now and ends with `end()` or a `using` block, also after an `await`; ranges may overlap. */
  range(text: string, payload?: number): NvtxRange {
    const domain = this.openDomain()
    const id = this.functions.nvtxDomainRangeStartEx(domain, this.event(text, payload))
    return new NvtxRange(() => this.functions.nvtxDomainRangeEnd(domain, id))
  }

  /** Begins a range of this thread, within the one that it began last; ended by `pop`, before any `await`. */
  push(text: string, payload?: number): void {
    this.functions.nvtxDomainRangePushEx(this.openDomain(), this.event(text, payload))
  }

  /** Ends the range that this thread began last. */
  pop(): void {
    this.functions.nvtxDomainRangePop(this.openDomain())
  }

  /** What tools call a stream instead of its number. */
  nameStream(stream: { readonly handle: number }, name: string): void {
    this.functions.nvtxNameCuStreamA(exact(stream.handle, 'nameStream: stream.handle'), textOf(name, 'name'))
  }

  /** What memory checkers call the memory that begins at `ptr`. Throws NoLibraryError where `checkNamesMemory` does. */
  nameMemory(ptr: number, name: string): void {
    this.checkNamesMemory()
    this.view.setBigUint64(REGION + 8, BigInt(exact(ptr, 'nameMemory: ptr')), true)
    this.setText(name)
    ;(this.nameRegions as NvtxFunction)(this.openDomain(), this.regions)
  }

  /** Throws NoLibraryError when this library cannot name memory, as libnvToolsExt cannot. */
  checkNamesMemory(): void {
    if (this.nameRegions instanceof NoLibraryError) throw this.nameRegions
  }

  private openDomain(): NvtxHandle {
    this.domain ??= this.functions.nvtxDomainCreateA(DOMAIN)
    return this.domain
  }

  private event(text: string, payload: number | undefined): Uint8Array {
    this.setText(text)
    this.view.setInt32(EVENT + 16, payload === undefined ? 0 : NVTX_PAYLOAD_TYPE_UNSIGNED_INT64, true)
    this.view.setBigUint64(EVENT + 24, BigInt(payload === undefined ? 0 : exact(payload, 'payload')), true)
    return this.memory
  }

  private setText(text: string): void {
    const { written } = this.encoder.encodeInto(textOf(text, 'text'), this.text)
    this.text[written] = 0 // the last byte of all is 0 anyway
  }

  /** What is the same in every struct. */
  private layOut(address: bigint): void {
    const { view } = this
    view.setUint16(EVENT, NVTX_VERSION, true)
    view.setUint16(EVENT + 2, EVENT_BYTES, true)
    view.setInt32(EVENT + 32, NVTX_MESSAGE_TYPE_ASCII, true)
    view.setBigUint64(EVENT + 40, address + BigInt(TEXT), true)
    view.setUint16(REGIONS, NVTX_EXT_COMPATID_MEM, true)
    view.setUint16(REGIONS + 2, REGIONS_BYTES, true)
    view.setBigUint64(REGIONS + 8, 1n, true)
    view.setBigUint64(REGIONS + 16, BigInt(REGION_BYTES), true)
    view.setBigUint64(REGIONS + 24, address + BigInt(REGION), true)
    view.setUint32(REGION, NVTX_MEM_REGION_REF_TYPE_POINTER, true)
    view.setUint32(REGION + 4, NVTX_MESSAGE_TYPE_ASCII, true)
    view.setBigUint64(REGION + 16, address + BigInt(TEXT), true)
  }
}

/** Made by `nvtx.range()`. */
export class NvtxRange implements Disposable {
  constructor(private stop: (() => void) | null) {}

  /** A second end does nothing. */
  end(): void {
    this.stop?.()
    this.stop = null
  }

  /** The same as `end()`. */
  [Symbol.dispose](): void {
    this.end()
  }
}

function optional(bind: () => NvtxFunction): NvtxFunction | NoLibraryError {
  try {
    return bind()
  } catch (error) {
    if (error instanceof NoLibraryError) return error
    throw error
  }
}
