// The turns of the models of a shelf: which uses begin, and which models sleep for the next one.
//
// Only one model is brought in at a time, for the first use in the queue that needs it. Meanwhile uses of models that
// are awake begin at once. But while that first use waits for others to end, none begins: so none waits for ever.

import { AsyncLocalStorage } from 'node:async_hooks'
import { OutOfMemoryError } from '../../base/errors.js'
import { onAbort } from '../../order/wait-options.js'
import type { SpareHandles } from '../backing/pieces/spare-handles.js'
import type { CachingPool } from '../caching/caching-pool.js'
import type { HostMemory } from '../sleep/host-pieces.js'
import type { ShelvedModel } from './model.js'

/** A use that waits for its model. */
interface Waiter<M> {
  readonly model: ShelvedModel<M>
  readonly begin: () => void
  readonly refuse: (error: unknown) => void
}

/** The code that runs now in a use of a model, or in its `load`. */
export interface Scope<M> {
  readonly model: ShelvedModel<M>
  isOver: boolean
}

export class Turns<M> {
  readonly models = new Set<ShelvedModel<M>>()
  switches = 0
  lastSwitchMs = 0
  /** in turn */
  private readonly queue = new Set<Waiter<M>>()
  private readonly scopes = new AsyncLocalStorage<Scope<M>>()
  /** calls that wait until a use ends, a use gives up, or a model has changed */
  private listeners: (() => void)[] = []
  private isSwitching = false
  /** whether the switch waits for uses to end */
  private isBlocked = false
  private places = 0

  constructor(
    private readonly budgetBytes: number,
    private readonly host: HostMemory,
    /** memory of models that fell asleep in the present switch */
    readonly spares: SpareHandles,
    private readonly makePool: (maxPoolBytes: number) => CachingPool,
  ) {}

  /** How many uses wait. */
  get waiting(): number {
    return this.queue.size
  }

  /** Device memory of the models that are awake, or change. */
  get heldBytes(): number {
    return [...this.models].reduce((sum, { heldBytes }) => sum + heldBytes, 0)
  }

  /** The use that the calling code runs in. */
  get scope(): Scope<M> | undefined {
    const scope = this.scopes.getStore()
    return scope?.isOver === false ? scope : undefined
  }

  /** Whether a model is used or changes; without one, whether any is. */
  isBusy(model?: ShelvedModel<M>): boolean {
    if (model !== undefined) return model.running > 0 || model.isChanging
    return this.isSwitching || [...this.models].some(each => this.isBusy(each))
  }

  /** Begins a use if it need not wait. A use within one of the same model never does. */
  tryBegin(model: ShelvedModel<M>): boolean {
    const isWithin = this.scope?.model === model
    if (!model.isReady || (this.isBlocked && !isWithin)) return false
    model.noteUse(1, ++this.places)
    return true
  }

  /** Resolves when a use of the model has begun in its turn. */
  waitFor(model: ShelvedModel<M>, signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      const leave = () => {
        forget()
        this.queue.delete(waiter)
      }
      const refuse = (error: unknown) => {
        leave()
        reject(error)
      }
      const begin = () => {
        leave()
        model.noteUse(1, ++this.places)
        resolve()
      }
      const forget = onAbort(signal, () => {
        refuse(signal!.reason)
        this.changed()
      })
      const waiter = { model, begin, refuse }
      this.queue.add(waiter)
      this.serve()
    })
  }

  /** Runs the work of a use that has begun, and ends the use. */
  async run<R>(model: ShelvedModel<M>, work: () => R | Promise<R>): Promise<R> {
    const scope = { model, isOver: false }
    try {
      return await this.scopes.run(scope, async () => await work())
    } finally {
      scope.isOver = true
      model.noteUse(-1, ++this.places)
      this.changed()
    }
  }

  /** Rejects the uses that wait for a model, or for any. */
  refuse(error: unknown, model?: ShelvedModel<M>): void {
    for (const waiter of this.queue) if (model === undefined || waiter.model === model) waiter.refuse(error)
    this.changed()
  }

  /** Resolves when a use ends, a use gives up, or a model has changed. */
  untilChange(): Promise<void> {
    return new Promise(resolve => this.listeners.push(resolve))
  }

  changed(): void {
    for (const listener of this.listeners.splice(0)) listener()
    this.serve()
  }

  /** Begins the uses that can begin, and a switch for the first of the others. */
  private serve(): void {
    if (this.isBlocked) return
    for (const { model, begin } of this.queue) if (model.isReady) begin()
    const [next] = this.queue
    if (next === undefined || this.isSwitching) return
    this.isSwitching = true
    void this.switchTo(next.model)
  }

  /** Wakes a model, or rejects the uses that wait for it. */
  private async switchTo(model: ShelvedModel<M>): Promise<void> {
    const scope = { model, isOver: false }
    let failure: { readonly error: unknown } | null = null
    try {
      // In a scope, so that `load` cannot wait for the switch that it is a part of.
      await this.scopes.run(scope, () => this.bringIn(model))
    } catch (error) {
      failure = { error }
    }
    this.spares.discard()
    scope.isOver = true
    this.isSwitching = false
    this.isBlocked = false
    if (failure === null) this.changed()
    else this.refuse(failure.error, model)
  }

  /** Wakes a model once there is room, as long as a use waits for it. */
  private async bringIn(model: ShelvedModel<M>): Promise<void> {
    /** why a model cannot sleep now */
    const refused = new Map<ShelvedModel<M>, unknown>()
    let shortage: unknown
    let start = performance.now()
    while (this.isWanted(model)) {
      shortage = await this.shortageFor(model)
      if (shortage === null) {
        await model.finish()
        this.switches++
        this.lastSwitchMs = performance.now() - start
        return
      }
      const next = this.leastRecent(model, refused)
      this.isBlocked = next === undefined
      if (next !== undefined) {
        const asleep = next.sleep(this.host, this.spares)
        this.serve() // uses of other models that were held up
        await asleep.catch(error => refused.set(next, error))
      } else if ([...this.models].some(other => other !== model && other.running > 0)) {
        const before = performance.now()
        await this.untilChange()
        start += performance.now() - before
        refused.clear()
      } else throw refused.size > 0 ? [...refused.values()][0] : shortage
    }
  }

  /** Takes the memory of a model. Returns null, or why there is too little: an error of the device, or the budget. */
  private async shortageFor(model: ShelvedModel<M>): Promise<unknown> {
    if (this.heldBytes - model.heldBytes + model.bytes > this.budgetBytes) return 'budget'
    try {
      await model.takeMemory(this.makePool, this.spares)
      return null
    } catch (error) {
      if (error instanceof OutOfMemoryError) return error
      throw error
    }
  }

  private isWanted(model: ShelvedModel<M>): boolean {
    return [...this.queue].some(waiter => waiter.model === model)
  }

  /** The model that can sleep and was used longest ago. */
  private leastRecent(
    wanted: ShelvedModel<M>,
    refused: ReadonlyMap<ShelvedModel<M>, unknown>,
  ): ShelvedModel<M> | undefined {
    return [...this.models]
      .filter(model => model !== wanted && model.heldBytes > 0 && !this.isBusy(model) && !refused.has(model))
      .sort((a, b) => a.lastUse - b.lastUse)[0]
  }
}
