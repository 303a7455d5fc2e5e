// The pages of host memory, by calls of the C library: on which NUMA node they lie, how large they are, and filling
// them in another thread. Only the native driver uses it, so the system is 64-bit Linux.

import { readFileSync } from 'node:fs'
import { type Koffi, loadKoffi } from './koffi.js'

/** The number of the system call mbind, by processor. The C library has no function for it. */
const MBIND: Partial<Record<NodeJS.Architecture, number>> = { x64: 237, arm64: 235 }
const MPOL_DEFAULT = 0
/** The system takes memory of other nodes when this one is full. MPOL_BIND would end the process then. */
const MPOL_PREFERRED = 1
/** moves pages that are there already */
const MPOL_MF_MOVE = 2
const MADV_HUGEPAGE = 14
/** the largest page of the supported systems */
const PAGE_BYTES = 64 * 1024
const NODES_WITH_MEMORY = '/sys/devices/system/node/has_memory'

/** Memory that another thread fills, which must not be collected meanwhile. */
const filling = new Set<ArrayBufferView>()

export class HostPages {
  private readonly mbind: (...args: unknown[]) => number
  private readonly madvise: (...args: unknown[]) => number
  private readonly memset: ReturnType<ReturnType<Koffi['load']>['func']>
  /** null until it is first asked for */
  private known: readonly number[] | null = null

  private constructor(private readonly koffi: Koffi) {
    const library = koffi.load(null)
    this.mbind = library.func(
      'long syscall(long number, uintptr_t address, size_t bytes, long mode, const void *mask, size_t bits, size_t flags)',
    )
    this.madvise = library.func('int madvise(uintptr_t address, size_t bytes, int advice)')
    this.memset = library.func('void memset(uintptr_t address, int value, size_t bytes)')
  }

  static open(): HostPages {
    return new HostPages(loadKoffi())
  }

  /** The NUMA nodes with memory; none where the system does not tell. */
  get nodes(): readonly number[] {
    this.known ??= readNodes()
    return this.known
  }

  /**
   * Places the whole pages of `host` on a node, those that are there already as well. Returns false if the system
   * refuses, as in containers without CAP_SYS_NICE.
   */
  bind(host: ArrayBufferView, node: number): boolean {
    if (!this.nodes.includes(node)) return false
    if (this.nodes.length === 1) return true // all memory lies there
    const mask = new BigUint64Array(Math.floor(node / 64) + 1)
    mask[mask.length - 1] = 1n << BigInt(node % 64)
    // The system reads one bit less than it is told of.
    return this.setPolicy(host, MPOL_PREFERRED, mask, 64 * mask.length + 1, MPOL_MF_MOVE)
  }

  /** Lets the pages of `host` lie on any node again: its memory goes back to the C library, and serves others. */
  unbind(host: ArrayBufferView): void {
    if (this.nodes.length > 1) this.setPolicy(host, MPOL_DEFAULT, null, 0, 0)
  }

  /** Asks for huge pages, which are filled and pinned faster. A system without them refuses, which does no harm. */
  wantHuge(host: ArrayBufferView): void {
    this.madvise(...this.wholePages(host), MADV_HUGEPAGE)
  }

  /**
   * Fills `host` with zeros in another thread, which gives it all of its pages. Resolves without that if no thread can
   * take the call.
   */
  fill(host: ArrayBufferView): Promise<void> {
    const address = Number(this.koffi.address(host))
    filling.add(host)
    return new Promise(resolve => {
      const end = () => {
        filling.delete(host)
        resolve()
      }
      try {
        this.memset.async(address, 0, host.byteLength, end)
      } catch {
        end() // too many calls wait already, or the stack is full
      }
    })
  }

  private setPolicy(host: ArrayBufferView, mode: number, mask: BigUint64Array | null, bits: number, flags: number) {
    const number = MBIND[process.arch]
    const [address, bytes] = this.wholePages(host)
    return number !== undefined && this.mbind(number, address, bytes, mode, mask, bits, flags) === 0
  }

  private wholePages(host: ArrayBufferView): [address: number, bytes: number] {
    const start = Number(this.koffi.address(host))
    const first = Math.ceil(start / PAGE_BYTES) * PAGE_BYTES
    const end = Math.floor((start + host.byteLength) / PAGE_BYTES) * PAGE_BYTES
    return [first, Math.max(0, end - first)]
  }
}

function readNodes(): readonly number[] {
  try {
    return parseNodes(readFileSync(NODES_WITH_MEMORY, 'utf8'))
  } catch {
    return [] // there is no sysfs, or this kernel knows no nodes
  }
}

/** The numbers of a list of the system, such as `0-1,4`. */
export function parseNodes(text: string): number[] {
  return text
    .trim()
    .split(',')
    .filter(part => part !== '')
    .flatMap(part => {
      const [first, last = first] = part.split('-').map(Number)
      return Array.from({ length: last - first + 1 }, (_, index) => first + index)
    })
}
