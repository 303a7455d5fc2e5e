// A shelf of models that take turns on a device with room for some of them. Before one is used, those sleep that were
// used longest ago. This file has what programs call; turns.ts decides who is next.

import { OutOfRangeError, WrongTypeError } from '../../base/argument-errors.js'
import { describe, formatBytes } from '../../base/bytes.js'
import { disposeOf } from '../../base/disposal.js'
import { PoolError } from '../../base/errors.js'
import { didYouMean } from '../../base/option-names.js'
import { listed, showAsText } from '../../base/readable.js'
import { printable, shownName } from '../../base/shown-text.js'
import type { Context } from '../../driver/context.js'
import { onAbort, signalOf, tooManyWait, type WaitOptions } from '../../order/wait-options.js'
import { SpareHandles } from '../backing/pieces/spare-handles.js'
import { virtualMemoryObstacle } from '../backing/virtual-memory.js'
import type { HostPool } from '../host/host-pool.js'
import { type ModelStats, ShelvedModel } from './model.js'
import {
  type ModelOptions,
  readModelOptions,
  readShelfOptions,
  type ShelfDevice,
  type ShelfOptions,
} from './shelf-options.js'
import { Turns } from './turns.js'

/** The figures of a shelf. */
export interface ShelfStats {
  /** the most device memory of the models that are awake */
  readonly budgetBytes: number
  /** device memory of the models that are awake, or change */
  readonly awakeBytes: number
  /** device memory that the models that sleep take to wake */
  readonly asleepBytes: number
  /** pinned host memory with contents of models */
  readonly hostCopyBytes: number
  /** uses that began at once */
  readonly hits: number
  /** uses that began after a wait */
  readonly waits: number
  /** uses that wait now */
  readonly waiting: number
  /** how often a model was loaded or woken */
  readonly switches: number
  /** milliseconds of the last of these, with the sleep of others, and without the wait for uses; 0 before the first */
  readonly lastSwitchMs: number
  /** the models, in the order in which they were added */
  readonly models: readonly ModelStats[]
}

/** Models that take turns on a device. Made by the device: `device.createShelf({ budgetBytes })`. */
export class Shelf<M = unknown> implements Disposable, AsyncDisposable {
  /** the most device memory of the models that are awake */
  readonly budgetBytes: number
  /** how many uses may wait at a time */
  readonly maxWaiting: number
  /** closed with the shelf; null if the program has given one */
  private readonly ownHost: HostPool | null
  /** without those that `remove` waits for */
  private readonly byName = new Map<string, ShelvedModel<M>>()
  private readonly turns: Turns<M>
  private isClosed = false
  private hits = 0
  private waits = 0

  /** Use `device.createShelf(options)`. */
  constructor(
    private readonly device: ShelfDevice,
    options: ShelfOptions,
  ) {
    const { budgetBytes, host, maxWaiting } = readShelfOptions(options, device)
    const obstacle = virtualMemoryObstacle(device.clocks.context)
    if (obstacle !== null) throw new PoolError(`createShelf: models cannot sleep: ${obstacle}`, 'ERR_NOT_SUPPORTED')
    this.budgetBytes = budgetBytes
    this.maxWaiting = maxWaiting
    this.ownHost = host === undefined ? device.createHostPool({ maxPoolBytes: Infinity }) : null
    const spares = new SpareHandles(device.clocks.context)
    this.turns = new Turns(budgetBytes, host ?? this.ownHost!, spares, maxPoolBytes =>
      device.createPool({ maxPoolBytes, backing: 'virtual' }),
    )
  }

  /**
   * Adds a model, which is loaded at its first use. Throws RangeError if it has more bytes than the budget, PoolError
   * if the shelf has a model of that name, or is closed, and TypeError for bad options.
   */
  add(name: string, options: ModelOptions<M>): void {
    this.checkOpen('add')
    if (typeof name !== 'string') throw new WrongTypeError(`add: name must be a text, not ${describe(name)}`)
    const { bytes, load, unchanged } = readModelOptions(options, this.device)
    if (this.byName.has(name))
      throw new PoolError(`add: the shelf has a model ${shownName(name)} already; remove it first`)
    const { context } = this.device.clocks
    const granule = context.activate().cuMemGetAllocationGranularity(context.device)
    const wholeBytes = Math.ceil(bytes / granule) * granule
    if (wholeBytes > this.budgetBytes) {
      throw new OutOfRangeError(
        `add: bytes of model ${shownName(name)} (${formatBytes(wholeBytes)}) exceed budgetBytes (${formatBytes(this.budgetBytes)}); raise that`,
      )
    }
    const model = new ShelvedModel(name, wholeBytes, load, unchanged)
    this.byName.set(name, model)
    this.turns.models.add(model)
  }

  /**
   * Runs `work` with a model, once it is awake; the model stays awake until `work` has ended. Several uses of a model
   * run at the same time. Resolves to the result of `work`, and rejects with its error or that of `load`. An abort of
   * `signal` ends the wait, and not the work.
   *
   * Rejects with OutOfMemoryError if the device has no room though no other model is awake, and with the error of a
   * `sleep` if none can. Rejects with PoolError within a use of another model, since each could wait for the other; if
   * `maxWaiting` uses wait; and once the model is removed or the shelf closed. Rejects with RangeError for an unknown
   * name.
   */
  async use<R>(name: string, work: (model: M) => R | Promise<R>, options: WaitOptions = {}): Promise<R> {
    if (typeof work !== 'function') {
      throw new WrongTypeError(`use: work must be a function, not ${describe(work)}; pass model => …`)
    }
    const signal = signalOf('use', options)
    this.checkOpen('use')
    const model = this.modelOf('use', name)
    signal?.throwIfAborted()
    const { turns } = this
    const outer = turns.scope?.model
    if (outer !== undefined && (outer !== model || !model.isReady)) {
      throw new PoolError(
        `use: ${shownName(name)} is asked for within a use of ${shownName(outer.name)}, and each could wait for the other; end that use first`,
        'ERR_POOL_IN_USE',
      )
    }
    if (turns.tryBegin(model)) this.hits++
    else {
      if (turns.waiting >= this.maxWaiting) throw tooManyWait('use', turns.waiting, 'a model')
      await turns.waitFor(model, signal)
      this.waits++
    }
    return await turns.run(model, () => {
      signal?.throwIfAborted() // at the moment of the turn
      return work(model.value)
    })
  }

  /**
   * Takes a model off the shelf. Uses that wait for it reject, and those that run go on; the promise resolves when they
   * have ended and the memory has gone back. Rejects with RangeError for an unknown name, and with PoolError within a
   * use of that model.
   */
  async remove(name: string): Promise<void> {
    const { turns } = this
    const model = this.modelOf('remove', name)
    if (turns.scope?.model === model) throw withinUse('remove')
    this.byName.delete(name)
    turns.refuse(new PoolError(`use: model ${shownName(name)} was removed from the shelf`, 'ERR_POOL_CLOSED'), model)
    while (turns.isBusy(model)) await turns.untilChange()
    model.close()
    turns.models.delete(model)
    turns.changed()
  }

  /** The figures of the shelf and of its models. */
  stats(): ShelfStats {
    const { budgetBytes, hits, waits, turns } = this
    const { heldBytes: awakeBytes, waiting, switches, lastSwitchMs } = turns
    const models = [...turns.models]
    const pools = models.flatMap(({ pool }) => (pool === null ? [] : [pool.stats()]))
    return {
      budgetBytes,
      awakeBytes,
      asleepBytes: pools.reduce((sum, { asleepBytes }) => sum + asleepBytes, 0),
      hostCopyBytes: pools.reduce((sum, { hostCopyBytes }) => sum + hostCopyBytes, 0),
      hits,
      waits,
      waiting,
      switches,
      lastSwitchMs,
      models: models.map(model => model.stats()),
    }
  }

  /** True as soon as `close` was called: no use begins any more. */
  get closed(): boolean {
    return this.isClosed
  }

  /**
   * Rejects new and waiting uses, and resolves when the running ones have ended, their work is complete, and all models
   * are closed. When `signal` is aborted, this closes the models that are still used, and rejects with its reason.
   * Rejects with PoolError within a use.
   */
  async close(options: WaitOptions = {}): Promise<void> {
    const signal = signalOf('close', options)
    const { turns } = this
    if (turns.scope !== undefined) throw withinUse('close')
    this.refuseAll()
    const forget = onAbort(signal, () => turns.changed())
    try {
      while (turns.isBusy()) {
        signal?.throwIfAborted()
        await turns.untilChange()
      }
      await this.device.clocks.finishForClose(signal)
    } finally {
      forget()
      this.closeNow()
    }
  }

  /**
   * Closes all models, used ones too, and rejects uses that wait.
   * @internal
   */
  closeNow(): void {
    this.refuseAll()
    for (const model of this.turns.models) model.close()
    this.turns.spares.discard()
    this.ownHost?.close()
    this.turns.changed()
  }

  /** @internal */
  get context(): Context {
    return this.device.clocks.context
  }

  /**
   * Whether `close` has ended, and all memory has gone back.
   * @internal
   */
  get isGone(): boolean {
    return this.isClosed && [...this.turns.models].every(({ pool }) => pool?.closed !== false)
  }

  /** Closes all models at once, used ones too, and rejects uses that wait. Where that throws, this warns. */
  [Symbol.dispose](): void {
    disposeOf(this, () => this.closeNow())
  }

  /** `close()` at the end of an `await using` block. Where that rejects, this warns. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close().catch(() => {})
    this[Symbol.dispose]()
  }

  /** One line for people: `Shelf { 3 of 8 models awake, 30 GiB of 40 GiB, 0 waiting }`; console.log shows it. */
  toString(): string {
    if (this.isClosed) return 'Shelf { closed }'
    const { budgetBytes, awakeBytes, waiting, models } = this.stats()
    const awake = models.filter(({ state }) => state === 'awake').length
    return `Shelf { ${awake} of ${models.length} models awake, ${formatBytes(awakeBytes)} of ${formatBytes(budgetBytes)}, ${waiting} waiting }`
  }

  /** The plain values that JSON.stringify writes. */
  toJSON(): object {
    return { device: this.device.clocks.context.ordinal, closed: this.isClosed, ...this.stats() }
  }

  private refuseAll(): void {
    this.isClosed = true
    this.turns.refuse(closedError('use'))
  }

  private checkOpen(call: string): void {
    if (this.isClosed) throw closedError(call)
  }

  private modelOf(call: string, name: string): ShelvedModel<M> {
    const model = this.byName.get(name)
    if (model !== undefined) return model
    const names = [...this.byName.keys()]
    const shelf = names.length === 0 ? 'the shelf is empty' : `the models are ${listed(names.map(shownName))}`
    throw new OutOfRangeError(
      `${call}: no model ${printable(describe(name))}: ${shelf}${didYouMean(String(name), names)}`,
    )
  }
}

function closedError(call: string): PoolError {
  return new PoolError(`${call}: the shelf is closed; create another`, 'ERR_POOL_CLOSED')
}

function withinUse(call: string): PoolError {
  return new PoolError(
    `${call}: called within a use, whose end it would wait for; call it after that`,
    'ERR_POOL_IN_USE',
  )
}

showAsText(Shelf)
