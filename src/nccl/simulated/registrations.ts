// Memory that a rank has registered, plain or as windows. Versions of NCCL differ:
//
// | NCCL         | memory of several mappings, registered | as a window                                      |
// | ------------ | -------------------------------------- | ------------------------------------------------ |
// | 2.19 to 2.22 | without effect                         | no windows                                       |
// | 2.23 to 2.26 | only the first mapping reaches others  | no windows                                       |
// | 2.27         | the same                               | refused; addresses and sizes in units of 2 MiB   |
// | 2.28         | the same                               | kills the context                                |
// | 2.29         | right                                  | refused                                          |
// | 2.30         | right                                  | right; addresses are multiples of 4096 from 2.28 |

import { KiB, MiB } from '../../core/base/bytes.js'
import { NCCL_RESULT } from '../constants.js'
import type { MemoryRange } from './collectives.js'
import { type Mistakes, NcclRefusal } from './mistake.js'
import type { MemoryPart, RankDevice } from './rank-device.js'

const MULTI_SEGMENT_FROM = 22900
const SHARED_FROM = 22300
const ALIGNED_WINDOWS_FROM = 22800
const SAFE_WINDOWS_FROM = 22900
const FREE_WINDOWS_FROM = 23000
const STRICT_WINDOW_UNIT = 2 * MiB
const WINDOW_UNIT = 4 * KiB

/** Registered memory, as it was when it was registered. */
interface Registration {
  readonly kind: 'segment' | 'window'
  readonly ptr: number
  readonly bytes: number
  readonly parts: readonly MemoryPart[]
  /** counts the windows of the communicator, as on all ranks; -1 for a segment */
  readonly index: number
}

/** The registrations of one rank, by handle. A handle is never used again. */
export class SimulatedRegistrations {
  private readonly held = new Map<number, Registration>()
  private nextHandle = 0x7c00_0010
  private windows = 0

  constructor(
    private readonly device: RankDevice,
    private readonly version: number,
    private readonly mistakes: Mistakes,
  ) {}

  get count(): number {
    return this.held.size
  }

  /** Registers memory for this rank; returns the handle. */
  register(ptr: number, bytes: number): number {
    const parts = this.accessible('ncclCommRegister', ptr, bytes)
    return this.add({ kind: 'segment', ptr, bytes, parts, index: -1 })
  }

  /** Why NCCL refuses a window, before it asks the other ranks; null if it does not. `openWindow` makes the window. */
  windowRefusal(ptr: number, bytes: number): NcclRefusal | null {
    const parts = this.accessible('ncclCommWindowRegister', ptr, bytes)
    if (parts.some(part => !part.isMapped)) {
      return new NcclRefusal(NCCL_RESULT.ncclUnhandledCudaError, 'a window needs memory of cuMemCreate')
    }
    this.checkWindow(ptr, bytes, parts)
    const { version } = this
    if (parts.length > 1 && version < FREE_WINDOWS_FROM) {
      return new NcclRefusal(NCCL_RESULT.ncclInvalidArgument, `a window over ${parts.length} mappings`)
    }
    const isStrict = version < ALIGNED_WINDOWS_FROM
    if (ptr % (isStrict ? STRICT_WINDOW_UNIT : WINDOW_UNIT) === 0 && !(isStrict && bytes % STRICT_WINDOW_UNIT !== 0)) {
      return null
    }
    return new NcclRefusal(NCCL_RESULT.ncclInvalidArgument, 'the address or size of a window is not aligned')
  }

  /** Makes the window once all ranks have come. */
  openWindow(ptr: number, bytes: number): number {
    const parts = this.accessible('ncclCommWindowRegister', ptr, bytes)
    return this.add({ kind: 'window', ptr, bytes, parts, index: this.windows++ })
  }

  /** Ends a registration. */
  remove(call: string, kind: Registration['kind'], handle: number): void {
    const registration = this.held.get(handle)
    if (registration?.kind !== kind) {
      this.mistakes.report(`${call}: there is no ${kind} ${at(handle)}, or it was deregistered before`)
    } else {
      if (!this.isIntact(registration)) {
        this.mistakes.report(`${call}: the memory at ${at(registration.ptr)} was unmapped or freed before its ${kind}`)
      }
      this.held.delete(handle)
    }
  }

  /** Reports a use of memory whose registration does not hold. */
  checkUse(call: string, range: MemoryRange | null): void {
    if (range === null) return
    const { ptr, bytes } = range
    for (const registration of this.held.values()) {
      if (registration.ptr >= ptr + bytes || ptr >= registration.ptr + registration.bytes) continue
      if (!this.isIntact(registration)) {
        this.mistakes.report(`${call} uses ${at(ptr)}, which was unmapped or freed while it was registered`)
      }
      if (!this.reachesOthers(registration, ptr, bytes)) {
        this.mistakes.report(
          `${call} uses ${at(ptr)}, registered memory of several mappings: before NCCL 2.29 other ranks reach only the first`,
        )
      }
    }
  }

  /** The offset of an address in its window, for people; '' outside of windows. Ranks compare it. */
  placeInWindow(ptr: number): string {
    for (const { kind, ptr: base, bytes, index } of this.held.values()) {
      if (kind === 'window' && base <= ptr && ptr < base + bytes) return `offset ${ptr - base} of window ${index}`
    }
    return ''
  }

  /** Forgets all, as at the end of a communicator. */
  clear(): void {
    this.held.clear()
  }

  private add(registration: Registration): number {
    const handle = this.nextHandle
    this.nextHandle += 16
    this.held.set(handle, registration)
    return handle
  }

  /** Reports a window that would hang or kill the context. */
  private checkWindow(ptr: number, bytes: number, parts: readonly MemoryPart[]): void {
    const call = 'ncclCommWindowRegister'
    if (parts.some(part => part.handleTypes === 0)) {
      this.mistakes.report(`${call} hangs: ${at(ptr)} cannot be exported, as its handle types are 0`)
    }
    const { version } = this
    if (parts.length > 1 && version >= ALIGNED_WINDOWS_FROM && version < SAFE_WINDOWS_FROM) {
      this.mistakes.report(`${call} of ${parts.length} mappings from ${at(ptr)} kills the context in NCCL 2.28`)
    }
    for (const { kind, ptr: other, bytes: otherBytes } of this.held.values()) {
      if (kind === 'window' && other < ptr + bytes && ptr < other + otherBytes) {
        this.mistakes.report(`${call}: ${at(ptr)} is in a window already`)
      }
    }
  }

  private accessible(call: string, ptr: number, bytes: number): MemoryPart[] {
    const parts = this.device.parts(ptr, bytes)
    if (parts === null) return this.mistakes.report(`${call}: nothing is mapped in ${bytes} bytes from ${at(ptr)}`)
    if (!parts.every(part => part.isAccessible)) {
      this.mistakes.report(`${call}: device ${this.device.ordinal} has no access to ${at(ptr)}`)
    }
    return parts
  }

  private isIntact({ ptr, bytes, parts }: Registration): boolean {
    const now = this.device.parts(ptr, bytes)
    const isSame = (part: MemoryPart, i: number) =>
      part.extent === parts[i]?.extent && part.contents === parts[i].contents
    return now !== null && now.length === parts.length && now.every(isSame)
  }

  private reachesOthers({ kind, parts }: Registration, ptr: number, bytes: number): boolean {
    const isPartial = this.version >= SHARED_FROM && this.version < MULTI_SEGMENT_FROM
    if (kind === 'window' || parts.length === 1 || !isPartial || !parts[0].isMapped) return true
    return ptr + bytes <= parts[0].base + parts[0].bytes
  }
}

function at(address: number): string {
  return `0x${address.toString(16)}`
}
