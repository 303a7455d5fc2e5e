// One model of a shelf, and its memory: a caching pool, made at the first use. While the model is awake, the pool has
// all bytes of the model, so no use of it can fail because another program takes memory.

import { shownName } from '../../base/shown-text.js'
import { isDriverError } from '../../base/thrown.js'
import type { SpareHandles } from '../backing/pieces/spare-handles.js'
import type { CachingPool } from '../caching/caching-pool.js'
import type { HostMemory } from '../sleep/host-pieces.js'

/** The state of a model. */
export type ModelState = 'notLoaded' | 'loading' | 'awake' | 'fallingAsleep' | 'asleep' | 'waking'

/** The figures of a model on a shelf. */
export interface ModelStats {
  /** as given to `add` */
  readonly name: string
  /** the device memory that it has while it is awake */
  readonly bytes: number
  /** its state now */
  readonly state: ModelState
  /** uses that run now */
  readonly running: number
  /** uses that have begun */
  readonly uses: number
  /** how often it was loaded or woken */
  readonly wakes: number
  /** when its last use began or ended, in milliseconds since 1970; null before the first */
  readonly lastUsedAt: number | null
}

export class ShelvedModel<M> {
  state: ModelState = 'notLoaded'
  running = 0
  uses = 0
  wakes = 0
  /** the place of its last use among those of all models */
  lastUse = 0
  pool: CachingPool | null = null
  /** whether an awake model has all its bytes */
  private isWhole = false
  private lastUsedAt: number | null = null
  private loaded: M | undefined

  constructor(
    readonly name: string,
    readonly bytes: number,
    private readonly load: (pool: CachingPool) => M | Promise<M>,
    private readonly unchanged: boolean,
  ) {}

  get value(): M {
    return this.loaded as M
  }

  get isChanging(): boolean {
    return this.state === 'loading' || this.state === 'waking' || this.state === 'fallingAsleep'
  }

  /** Its part of the budget; 0 if it sleeps or is not loaded, unless the driver refused to take memory back. */
  get heldBytes(): number {
    const isAway = this.state === 'asleep' || this.state === 'notLoaded'
    return isAway && (this.pool?.stats().reservedBytes ?? 0) === 0 ? 0 : this.bytes
  }

  noteUse(change: 1 | -1, place: number): void {
    this.running += change
    if (change === 1) this.uses++
    this.lastUse = place
    this.lastUsedAt = Date.now()
  }

  /** Whether a use can begin at once. */
  get isReady(): boolean {
    return this.state === 'awake' && this.isWhole
  }

  /**
   * Takes all memory of the model, with the contents: that of `spares`, which is empty then, and more of the device.
   * After an error it can be repeated.
   */
  async takeMemory(makePool: (maxPoolBytes: number) => CachingPool, spares: SpareHandles): Promise<void> {
    const isLoaded = this.state !== 'notLoaded'
    if (isLoaded && this.pool!.asleep) await this.wake(this.pool!, spares)
    spares.release() // before `reserve` asks what the device has left
    // The pool of a loaded model has less only if a use gave memory back.
    if (isLoaded) this.pool!.reserve(this.bytes)
    else this.makeMemory(makePool)
    this.isWhole = true
  }

  private makeMemory(makePool: (maxPoolBytes: number) => CachingPool): void {
    this.drop()
    this.pool = makePool(this.bytes)
    this.pool.raise = `raise the bytes of model ${shownName(this.name)} on its shelf`
    this.state = 'loading'
    try {
      this.pool.reserve(this.bytes)
    } catch (error) {
      this.unload()
      throw error
    }
  }

  private async wake(pool: CachingPool, spares: SpareHandles): Promise<void> {
    this.state = 'waking'
    pool.spares = spares
    try {
      await pool.wake({ keepCopy: this.unchanged })
    } finally {
      pool.spares = null
      this.state = pool.asleep || pool.closed ? 'asleep' : 'awake'
    }
  }

  /** The last step to be ready: loads the model, if that has not been done. */
  async finish(): Promise<void> {
    try {
      if (this.state === 'loading') this.loaded = await this.load(this.pool!)
    } catch (error) {
      this.unload()
      throw error
    }
    this.state = 'awake'
    this.wakes++
  }

  /** Leaves all memory to `spares`. After an error the model is awake, or the driver has refused to unmap memory. */
  async sleep(host: HostMemory, spares: SpareHandles): Promise<void> {
    if (this.state === 'notLoaded') return this.drop()
    const pool = this.pool!
    this.state = 'fallingAsleep'
    this.isWhole = false
    pool.spares = spares
    try {
      await pool.sleep({ into: host, unchanged: this.unchanged })
    } finally {
      pool.spares = null
      this.state = pool.asleep || pool.closed ? 'asleep' : 'awake'
    }
  }

  /** Closes the pool with all buffers. Throws what the close throws, and can be repeated. */
  close(): void {
    this.pool?.close()
  }

  stats(): ModelStats {
    const { name, bytes, state, running, uses, wakes, lastUsedAt } = this
    return { name, bytes, state, running, uses, wakes, lastUsedAt }
  }

  private drop(): void {
    this.pool?.close()
    this.pool = null
  }

  /** After an error. If the driver refuses the close, it is tried again before the next use, or with the shelf. */
  private unload(): void {
    this.state = 'notLoaded'
    try {
      this.drop()
    } catch (error) {
      if (!isDriverError(error)) throw error
    }
  }
}
