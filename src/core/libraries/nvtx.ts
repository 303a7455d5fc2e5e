// Ranges, marks and names for profilers; core/pool/wrappers/profiled.ts uses it, and programs may. All events are in
// one NVTX domain, by which tools filter. Events are structs in one buffer, laid out by hand as in 64-bit C. The buffer
// is used again for each event, because tools copy it during the call.

import { NoLibraryError } from '../base/errors.js'
import { showAsText } from '../base/readable.js'
import { exact, text as textOf } from './arguments.js'
import {
  type NvtxFunction,
  type NvtxFunctionName,
  type NvtxHandle,
  type NvtxLibrary,
  nvtxPaths,
  openNvtxLibrary,
} from './nvtx-library.js'

/** The name of the domain in tools. */
const DOMAIN = 'cuda-mempool'

const NVTX_VERSION = 3
const NVTX_MESSAGE_TYPE_ASCII = 1
const NVTX_PAYLOAD_TYPE_UNSIGNED_INT64 = 1
const NVTX_EXT_COMPATID_MEM = 0x0102
const NVTX_MEM_REGION_REF_TYPE_POINTER = 1

// Byte offsets in the buffer, in its order.
// nvtxEventAttributes: version, size, category, color type, color, payload type, 0, payload, message type, message
const EVENT = 0
const EVENT_BYTES = 48
const REGIONS = EVENT + EVENT_BYTES // nvtxMemRegionsNameBatch: extension, size, 0, how many, size of each, where, 0
const REGIONS_BYTES = 40
const REGION = REGIONS + REGIONS_BYTES // nvtxMemRegionNameDesc: reference type, name type, address, name, category, 0
const REGION_BYTES = 32
const TEXT = REGION + REGION_BYTES
/** longer texts are truncated */
const TEXT_BYTES = 256

/**
 * Opens NVTX at `path`, or at the usual places (LD_LIBRARY_PATH, then the CUDA toolkit). Open the device first: some
 * tools need CUDA to be initialised before. Throws NoLibraryError with the attempts.
 */
export function openNvtx(path?: string): Nvtx {
  return new Nvtx(openNvtxLibrary(path === undefined ? nvtxPaths() : [textOf(path, 'openNvtx: path')]))
}

/** Annotations for a profiler, made by `openNvtx`. Without a profiler, each call returns at once. */
export class Nvtx {
  /** the path of the opened library */
  readonly path: string
  private readonly memory = new Uint8Array(new ArrayBuffer(TEXT + TEXT_BYTES))
  private readonly view = new DataView(this.memory.buffer)
  private readonly regions = this.memory.subarray(REGIONS)
  private readonly text = this.memory.subarray(TEXT, TEXT + TEXT_BYTES - 1)
  private readonly encoder = new TextEncoder()
  private readonly functions: Readonly<Record<Exclude<NvtxFunctionName, 'nvtxMemRegionsName'>, NvtxFunction>>
  private readonly nameRegions: NvtxFunction | NoLibraryError
  /** made with the first event, because NVTX then looks for its tool */
  private domain: NvtxHandle | null = null

  /** Throws NoLibraryError if the library lacks a function, so that later calls do not. */
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

  /** Marks a point in time. Tools show `payload` beside it, an integer from 0, below 2^53. */
  mark(text: string, payload?: number): void {
    this.functions.nvtxDomainMarkEx(this.openDomain(), this.event(text, payload))
  }

  /** Begins a range that ends by `end()` or with a `using` block, possibly after an `await`. Ranges may overlap. */
  range(text: string, payload?: number): NvtxRange {
    const domain = this.openDomain()
    const id = this.functions.nvtxDomainRangeStartEx(domain, this.event(text, payload))
    return new NvtxRange(() => this.functions.nvtxDomainRangeEnd(domain, id))
  }

  /** Begins a range of this thread, nested in its latest range. End it by `pop`, before any `await`. */
  push(text: string, payload?: number): void {
    this.functions.nvtxDomainRangePushEx(this.openDomain(), this.event(text, payload))
  }

  /** Ends the latest range of this thread. */
  pop(): void {
    this.functions.nvtxDomainRangePop(this.openDomain())
  }

  /** Sets the name of a stream in tools. */
  nameStream(stream: { readonly handle: number }, name: string): void {
    this.functions.nvtxNameCuStreamA(exact(stream.handle, 'nameStream: stream.handle'), textOf(name, 'name'))
  }

  /** Sets the name of the memory at `ptr` in memory checkers. Throws NoLibraryError if `checkNamesMemory` does. */
  nameMemory(ptr: number, name: string): void {
    this.checkNamesMemory()
    this.view.setBigUint64(REGION + 8, BigInt(exact(ptr, 'nameMemory: ptr')), true)
    this.setText(name)
    ;(this.nameRegions as NvtxFunction)(this.openDomain(), this.regions)
  }

  /** Throws NoLibraryError if this library cannot name memory, as libnvToolsExt cannot. */
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
    this.text[written] = 0 // after the longest text, the byte behind the view is 0 already
  }

  /** Writes the fields that never change. */
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

  /** One line for people, such as `Nvtx { libnvToolsExt.so.1 }`; console.log shows it. */
  toString(): string {
    return `Nvtx { ${this.path} }`
  }

  /** The plain values that JSON.stringify writes. */
  toJSON(): object {
    return { path: this.path }
  }
}

/** A range, made by `nvtx.range()`. */
export class NvtxRange implements Disposable {
  constructor(private stop: (() => void) | null) {}

  /** Ends the range. A second call does nothing. */
  end(): void {
    this.stop?.()
    this.stop = null
  }

  /** The same as `end()`. */
  [Symbol.dispose](): void {
    this.end()
  }

  /** One line for people, such as `NvtxRange { open }`; console.log shows it. */
  toString(): string {
    return `NvtxRange { ${this.stop === null ? 'ended' : 'open'} }`
  }

  /** The plain values that JSON.stringify writes. */
  toJSON(): object {
    return { ended: this.stop === null }
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

showAsText(Nvtx, NvtxRange)
