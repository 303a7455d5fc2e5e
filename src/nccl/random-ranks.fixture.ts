// The ranks of random programs: communicators that come and go, what they have registered, and their symmetric arenas.

import { KiB } from '../core/base/bytes.js'
import { Communicator } from './communicator.js'
import { RandomMemory } from './random-memory.fixture.js'
import { CELLS } from './shadow.fixture.js'
import type { SymmetricArena } from './symmetric-arena.js'

/** while a rank cannot come, since a call of it was refused */
const SHORT_MS = 40
const LONG_MS = 10_000

/** Communicators of one world, and what is open of them. */
export interface Ranks {
  readonly comms: readonly Communicator[]
  isRegistered: boolean
  readonly arenas: { readonly each: readonly SymmetricArena[] }[]
}

export abstract class RandomRanks extends RandomMemory {
  protected readonly opened: Ranks[] = []

  constructor(
    seed: number,
    ranks: number,
    protected readonly hasFaults: boolean,
  ) {
    super(seed, ranks)
  }

  /** Closes the graphs with captured collectives. */
  protected abstract closeGraphs(): void

  // Registrations and symmetric arenas

  protected register(): void {
    const ranks = this.anyRanks()
    if (ranks === null || ranks.isRegistered) return
    try {
      for (const [rank, comm] of ranks.comms.entries()) comm.register(this.pools[rank].registrable)
      ranks.isRegistered = true
    } catch (error) {
      this.clearFaults()
      for (const [rank, comm] of ranks.comms.entries()) comm.deregister(this.pools[rank].registrable)
      throw error
    }
  }

  protected deregister(): void {
    const ranks = this.anyRanks()
    if (ranks === null || !ranks.isRegistered) return
    this.synchronize()
    const all = () => {
      for (const [rank, comm] of ranks.comms.entries()) comm.deregister(this.pools[rank].registrable)
      ranks.isRegistered = false
    }
    try {
      all()
    } catch (error) {
      this.clearFaults()
      all()
      throw error
    }
  }

  protected async openArena(): Promise<void> {
    const ranks = this.anyRanks()
    if (ranks === null || ranks.arenas.length === 2) return
    this.releaseHolds()
    const options = { bytes: 64 * KiB, debug: true }
    const results = await Promise.allSettled(ranks.comms.map(comm => comm.createSymmetricArena(options)))
    const each = results.flatMap(result => (result.status === 'fulfilled' ? [result.value] : []))
    const failed = results.find(result => result.status === 'rejected')
    if (failed === undefined) ranks.arenas.push({ each })
    else {
      this.clearFaults()
      this.abortAll(ranks)
      throw failed.reason
    }
  }

  protected allocateInArena(): void {
    const arena = this.anyArena()
    if (arena === null) return
    const length = CELLS + this.random.below(5000)
    try {
      this.make(arena, length, rank => arena[rank].allocateArray(Uint32Array, length, this.anyStream(rank)))
    } catch (error) {
      this.clearFaults()
      this.closeGraphs()
      this.reset(arena) // one rank may have allocated, so that offsets differ
      throw error
    }
  }

  protected resetArena(): void {
    const arena = this.anyArena()
    if (arena === null || this.families.some(({ home, graphs }) => home === arena && graphs > 0)) return
    this.reset(arena)
  }

  private reset(arena: readonly SymmetricArena[]): void {
    this.drop(arena)
    try {
      for (const each of arena) each.reset()
    } finally {
      this.clearFaults() // after a refusal it can be repeated
      for (const each of arena) each.reset()
    }
  }

  protected async compareOffsets(): Promise<void> {
    const arena = this.anyArena()
    if (arena === null) return
    this.releaseHolds()
    this.world.driver.clearFaults() // a rank that cannot call would let the others wait
    const results: Promise<void>[] = []
    Communicator.group(() => results.push(...arena.map(each => each.compareOffsets())))
    const failed = (await Promise.allSettled(results)).find(result => result.status === 'rejected')
    if (failed === undefined) return this.note('compared offsets')
    this.abortAll(this.opened.find(({ arenas }) => arenas.some(({ each }) => each === arena))!)
    throw failed.reason
  }

  protected closeArena(): void {
    const ranks = this.anyRanks()
    if (ranks === null || ranks.arenas.length === 0) return
    const { each } = ranks.arenas[0]
    this.closeGraphs()
    this.drop(each)
    try {
      for (const arena of each) arena.close()
    } finally {
      this.clearFaults() // after a refusal it can be repeated
      for (const arena of each) arena.close()
      ranks.arenas.shift()
    }
  }

  protected anyArena(): readonly SymmetricArena[] | null {
    const arenas = this.opened.flatMap(ranks => ranks.arenas)
    return arenas.length === 0 ? null : arenas[this.random.below(arenas.length)].each
  }

  /** The arrays of an arena are gone. */
  protected drop(home: unknown): void {
    const kept = this.families.filter(family => family.home !== home)
    this.families.splice(0, Infinity, ...kept)
  }

  // Communicators

  protected async join(): Promise<void> {
    if (this.opened.length === 2) return
    const timeoutMs = this.hasFaults ? SHORT_MS : LONG_MS
    const comms = await Communicator.joinAll(this.world.devices, { timeoutMs })
    this.opened.push({ comms, isRegistered: false, arenas: [] })
  }

  /** Waits for all collectives. */
  protected async finish(): Promise<void> {
    this.releaseHolds()
    await this.all(comm => comm.finished())
  }

  protected async close(): Promise<void> {
    const ranks = this.anyRanks()
    if (ranks === null) return
    this.releaseHolds()
    this.closeGraphs()
    try {
      await this.all(comm => comm.close(), ranks)
      this.forget(ranks)
    } catch (error) {
      this.clearFaults()
      this.abortAll(ranks)
      throw error
    }
  }

  protected abort(): void {
    const ranks = this.anyRanks()
    if (ranks !== null) this.abortAll(ranks)
  }

  protected async all(call: (comm: Communicator) => Promise<void>, ranks = this.anyRanks()): Promise<void> {
    const results = await Promise.allSettled((ranks?.comms ?? []).map(call))
    for (const result of results) if (result.status === 'rejected') throw result.reason
  }

  /** What unfinished collectives would have written is undefined. */
  protected abortAll(ranks: Ranks): void {
    this.closeGraphs()
    // The close of an arena waits for all work of its device, also for that of other communicators.
    if (this.opened.length > 1) this.synchronize()
    try {
      for (const comm of ranks.comms) comm.abort()
    } finally {
      this.clearFaults() // after a refusal it can be repeated
      for (const comm of ranks.comms) comm.abort()
      this.forgetAborted(ranks)
    }
  }

  protected forgetAborted(ranks: Ranks): void {
    for (const family of this.families) if (family.isBusy) family.forget()
    this.forget(ranks)
  }

  protected abortFailed(): void {
    const failed = this.opened.filter(({ comms }) => comms.some(comm => comm.toString().includes('failed')))
    for (const ranks of failed) this.abortAll(ranks)
  }

  protected forget(ranks: Ranks): void {
    for (const { each } of ranks.arenas) this.drop(each)
    this.opened.splice(this.opened.indexOf(ranks), 1)
  }

  protected anyRanks(): Ranks | null {
    return this.opened.length === 0 ? null : this.opened[this.random.below(this.opened.length)]
  }
}
