// A stand-in for NVTX with a profiler attached, which reads the structs of events as a tool does.

import { NoLibraryError } from '../base/errors.js'
import { Nvtx } from './nvtx.js'
import type { NvtxFunction, NvtxFunctionName, NvtxHandle, NvtxLibrary } from './nvtx-library.js'

/** The address that the stand-in reports for the structs. */
const BASE = 0x7f00_0000_0000n

/** Handles of real tools may be any 64 bits. */
const DOMAIN = 2n ** 63n + 5n

interface NvtxEvent {
  readonly call: NvtxFunctionName
  readonly text?: string
  readonly payload?: number | null
  readonly handle?: NvtxHandle
}

class FakeNvtxLibrary implements NvtxLibrary {
  readonly path = 'a stand-in'
  readonly events: NvtxEvent[] = []
  readonly binds: NvtxFunctionName[] = []
  private memory: DataView = new DataView(new ArrayBuffer(0))
  private ranges = 2n ** 60n

  /** The library lacks the functions in `lacking`. */
  constructor(private readonly lacking: readonly NvtxFunctionName[] = []) {}

  bind(name: NvtxFunctionName): NvtxFunction {
    if (this.lacking.includes(name)) throw new NoLibraryError(`${this.path} has no ${name}`)
    this.binds.push(name)
    return (...args) => this.call(name, args)
  }

  addressOf(view: ArrayBufferView): bigint {
    this.memory = new DataView(view.buffer, view.byteOffset, view.byteLength)
    return BASE
  }

  /** The events since the last call, as text: `push allocate 1024`, `pop`; `|` shows nesting. */
  told(): string[] {
    const lines: string[] = []
    let depth = 0
    for (const { call, text = '', payload } of this.events.splice(0)) {
      const what = SHORT[call]
      if (what === null) continue
      if (what === 'pop') depth--
      const bar = '|'.repeat(depth)
      if (what !== 'pop') lines.push(`${bar}${what} ${text}${payload == null ? '' : ` ${payload}`}`)
      if (what === 'push') depth++
    }
    if (depth !== 0) lines.push(`${depth} ranges were not ended`)
    return lines
  }

  private call(name: NvtxFunctionName, args: readonly unknown[]): NvtxHandle {
    const [first, second] = args
    if (name === 'nvtxDomainCreateA') {
      this.events.push({ call: name, text: first as string })
      return DOMAIN
    }
    if (name === 'nvtxNameCuStreamA') this.events.push({ call: name, handle: first as number, text: second as string })
    else if (first !== DOMAIN) throw new Error(`${name} got the domain ${first}`)
    else if (name === 'nvtxDomainRangePop') this.events.push({ call: name })
    else if (name === 'nvtxDomainRangeEnd') this.events.push({ call: name, handle: second as bigint })
    else if (name === 'nvtxMemRegionsName') this.events.push(this.namedRegion(second as Uint8Array))
    else this.events.push({ call: name, ...this.event(second as Uint8Array) })
    return name === 'nvtxDomainRangeStartEx' ? this.ranges++ : 0
  }

  /** nvtxEventAttributes */
  private event(struct: Uint8Array): { text: string; payload: number | null } {
    const view = new DataView(struct.buffer, struct.byteOffset)
    const fixed = [view.getUint16(0, true), view.getUint16(2, true), view.getInt32(32, true)]
    if (fixed.join() !== '3,48,1') throw new Error(`version, size and message type are ${fixed}`)
    const payload = view.getInt32(16, true) === 1 ? Number(view.getBigUint64(24, true)) : null
    return { text: this.textAt(view.getBigUint64(40, true)), payload }
  }

  /** nvtxMemRegionsNameBatch with one nvtxMemRegionNameDesc */
  private namedRegion(struct: Uint8Array): NvtxEvent {
    const batch = new DataView(struct.buffer, struct.byteOffset)
    const [count, size] = [batch.getBigUint64(8, true), batch.getBigUint64(16, true)]
    const fixed = [batch.getUint16(0, true), batch.getUint16(2, true), count, size]
    if (fixed.join() !== `${0x0102},40,1,32`) throw new Error(`extension, size, count and element size are ${fixed}`)
    const region = Number(batch.getBigUint64(24, true) - BASE)
    const types = [this.memory.getUint32(region, true), this.memory.getUint32(region + 4, true)]
    if (types.join() !== '1,1') throw new Error(`reference and name type are ${types}`)
    const ptr = Number(this.memory.getBigUint64(region + 8, true))
    const text = this.textAt(this.memory.getBigUint64(region + 16, true))
    return { call: 'nvtxMemRegionsName', text, payload: ptr }
  }

  private textAt(address: bigint): string {
    const bytes = new Uint8Array(this.memory.buffer).subarray(Number(address - BASE))
    const end = bytes.indexOf(0)
    if (end === -1) throw new Error('a text has no end')
    return new TextDecoder().decode(bytes.subarray(0, end))
  }
}

const SHORT: Readonly<Record<NvtxFunctionName, string | null>> = {
  nvtxDomainCreateA: null,
  nvtxDomainMarkEx: 'mark',
  nvtxDomainRangePushEx: 'push',
  nvtxDomainRangePop: 'pop',
  nvtxDomainRangeStartEx: 'start',
  nvtxDomainRangeEnd: 'end',
  nvtxNameCuStreamA: 'stream',
  nvtxMemRegionsName: 'memory',
}

/** An Nvtx object with its stand-in. */
export function fakeNvtx(lacking: readonly NvtxFunctionName[] = []): { nvtx: Nvtx; library: FakeNvtxLibrary } {
  const library = new FakeNvtxLibrary(lacking)
  return { nvtx: new Nvtx(library), library }
}
