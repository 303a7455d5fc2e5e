// The memory of a model of PyTorch's allocator: how much it has reserved, how much it may, and where its segments lie.

import type { MemoryWatcher } from '../../placements/placements.js'
import { PlacementRules } from './placement-rules.js'
import { BlockPools, MOST_SMALL_BYTES, type ModelBlock, type ModelPool, type UsedRange } from './policy-blocks.js'
import type { PytorchSettings } from './pytorch-settings.js'

/** The address of segments that no recording places: above every address of a GPU. */
const FIRST_SYNTHETIC_BASE = 2 ** 52

export interface PolicyOptions {
  /** PyTorch's settings; default its defaults */
  readonly settings?: PytorchSettings
  /** the most bytes that the device gives; default no limit */
  readonly capacityBytes?: number
  /** the program's own limit, as torch.cuda.set_per_process_memory_fraction sets it; default none */
  readonly limitBytes?: number
  /** whether segments that no recording places lie below the ones before, as a driver may choose; default above */
  readonly segmentsFall?: boolean
  /** called before all free memory is given back: PyTorch then waits for blocks that other streams still use */
  readonly onSynchronize?: () => void
}

/** Base of both models. */
export abstract class PolicyMemory {
  reservedBytes = 0
  peakReservedBytes = 0
  retries = 0
  watcher: MemoryWatcher | null = null
  readonly unusedPools = new Set<number>()
  protected readonly pools = new BlockPools(block => this.idleAddressIn(block))
  protected readonly rules: PlacementRules
  protected readonly capacityBytes: number
  protected readonly limitBytes: number
  protected readonly synchronize: () => void
  private readonly countsSearches: boolean
  private readonly segmentsFall: boolean
  private nextSyntheticBase = FIRST_SYNTHETIC_BASE

  constructor(options: PolicyOptions = {}) {
    this.rules = new PlacementRules(options.settings)
    this.capacityBytes = options.capacityBytes ?? Infinity
    this.limitBytes = options.limitBytes ?? Infinity
    this.segmentsFall = options.segmentsFall ?? false
    this.synchronize = options.onSynchronize ?? (() => {})
    this.countsSearches = this.garbageBytes < Infinity
  }

  /** The reserved bytes above which garbage is collected. */
  protected get garbageBytes(): number {
    const threshold = this.rules.garbageCollectionThreshold
    return threshold > 0 ? Math.floor(threshold * this.limitBytes) : Infinity
  }

  needsMore(bytes: number, stream: number, pool: number, limitBytes: number): boolean {
    const rounded = this.rules.round(bytes)
    const block = this.bestFree(this.poolOf(rounded, stream, pool), rounded)
    if (block !== null && this.rules.mayServe(block.bytes, rounded)) return false
    return this.reservedBytes + this.rules.segmentBytes(rounded) > limitBytes
  }

  protected poolOf(rounded: number, stream: number, owner: number): ModelPool {
    return this.pools.of(stream, rounded <= MOST_SMALL_BYTES, owner)
  }

  /** The address of the memory in a free block that could go back to the device, -1 without any. */
  protected abstract idleAddressIn(block: ModelBlock): number

  /**
   * The free blocks with memory that may be given back. PyTorch keeps that of a private pool while a graph uses it.
   */
  protected idle(): ModelBlock[] {
    return this.pools.idle.of([0, ...this.unusedPools])
  }

  /** Takes the best free block for a request; null if the best that fits may not serve it. */
  protected takeFree(pool: ModelPool, rounded: number): ModelBlock | null {
    if (this.countsSearches) pool.searches.count++
    const block = this.bestFree(pool, rounded)
    if (block === null || !this.rules.mayServe(block.bytes, rounded)) return null
    pool.remove(block)
    return block
  }

  /** The smallest free block that fits, at the lowest address. */
  protected bestFree(pool: ModelPool, rounded: number): ModelBlock | null {
    return pool.free.smallest(rounded)
  }

  protected splitRest(block: ModelBlock, rounded: number): void {
    if (this.rules.splits(block.bytes - rounded, rounded, block.pool.small)) block.pool.insert(block.cut(rounded))
  }

  protected countReserved(bytes: number): void {
    this.reservedBytes += bytes
    this.peakReservedBytes = Math.max(this.peakReservedBytes, this.reservedBytes)
  }

  /** An address for a segment of `bytes`. */
  protected syntheticBase(bytes: number): number {
    if (this.segmentsFall) {
      this.nextSyntheticBase -= bytes
      return this.nextSyntheticBase
    }
    const base = this.nextSyntheticBase
    this.nextSyntheticBase += bytes
    return base
  }

  /** Cuts `block` into blocks in use, by rising address, and free ones between them; returns those in use. */
  protected cutUsed(block: ModelBlock, used: readonly UsedRange[]): ModelBlock[] {
    const { pool } = block
    let rest = block
    const blocks = used.map(({ address, bytes }) => {
      if (address > rest.address) {
        const before = rest
        rest = before.cut(address - before.address)
        pool.insert(before)
      }
      const taken = rest
      if (bytes < taken.bytes) rest = taken.cut(bytes)
      return taken
    })
    if (blocks.at(-1) !== rest) pool.insert(rest)
    return blocks
  }
}
