// Device memory that outlives its process: a keeper, which is a process of its own, holds its descriptors. This side
// makes the memory, maps it and describes its contents; the messages are core/keeper's. docs/keep.md is for those who
// run a server.

import { OutOfRangeError, WrongTypeError } from '../core/base/argument-errors.js'
import { describe, formatBytes } from '../core/base/bytes.js'
import { KeepError, PoolError } from '../core/base/errors.js'
import { checkFlag, checkOptionNames } from '../core/base/option-names.js'
import { showAsText } from '../core/base/readable.js'
import { shownName } from '../core/base/shown-text.js'
import { Device } from '../core/device/device.js'
import { UNIT_BYTES } from '../core/heap/size-classes.js'
import { closePieces } from '../core/keeper/attachments.js'
import { type FindRequest, KeeperClient } from '../core/keeper/client.js'
import type { Found } from '../core/keeper/receiving.js'
import type { KeepEvent, KeptDevice, PruneRule, RegionInfo } from '../core/keeper/region.js'
import { within } from '../core/libraries/arguments.js'
import { MOST_DESCRIPTORS } from '../core/libraries/unix-socket.js'
import { signalOf } from '../core/order/wait-options.js'
import { shareableGranule } from '../core/pool/mapped/interprocess-buffer.js'
import { announcePool } from '../core/pool/new-pools.js'
import { FillScopes } from './fill-scopes.js'
import { Filling } from './filling.js'
import { hostMemory, KeptFile } from './kept-file.js'
import { LeavingMemory } from './leaving-memory.js'
import {
  type AttachOptions,
  checkName,
  checkVersion,
  type KeepOptions,
  type RegionOptions,
  readWanted,
} from './options.js'
import { Region } from './region.js'

const MOST_TIMEOUT_MS = 2 ** 31 - 1 // of setTimeout
const INSTEAD = 'such a device can keep no memory; load it in each process'

/**
 * Connects to this user's keeper, `npx cuda-mempool keep`, for memory of `device` that outlives this process. Rejects
 * with KeepError 'gone' if no keeper answers in time, and with PoolError if the device cannot share memory.
 */
export async function openKeep(device: Device, options: KeepOptions = {}): Promise<Keep> {
  if (!(device instanceof Device))
    throw new WrongTypeError(`openKeep: device must be a Device, not ${describe(device)}`)
  const signal = signalOf('openKeep', options, ['path', 'timeoutMs'])
  const granuleBytes = shareableGranule('openKeep', device.context, INSTEAD)
  const { path, timeoutMs } = options
  if (timeoutMs !== undefined) within(timeoutMs, 0, MOST_TIMEOUT_MS, 'openKeep: timeoutMs')
  const keep = new Keep(device, await KeeperClient.open({ path, timeoutMs, signal }), granuleBytes)
  announcePool(keep)
  return keep
}

/** A region that this process has attached or fills. */
export interface HeldRegion {
  readonly name: string
  readonly version: string
  readonly generation: number
  readonly bytes: number
  /** 'filled' if this process has filled it */
  readonly here: 'filling' | 'filled' | 'attached'
}

/** A connection to the keeper. Made by `openKeep`. */
export class Keep implements Disposable {
  private readonly regions = new Set<Region | KeptFile>()
  private readonly fillings = new Set<Filling>()
  private readonly memory = new LeavingMemory()
  private readonly scopes = new FillScopes()
  private isClosed = false

  /** @internal */
  constructor(
    private readonly device: Device,
    private readonly client: KeeperClient,
    private readonly granuleBytes: number,
  ) {}

  /**
   * The region of that name and version. The first process to ask for it makes its contents by `fill`, and the others
   * wait for it. If `fill` throws, nothing is kept, the next in line fills it, and the call rejects with its error.
   * Rejects with KeepError, with OutOfMemoryError if the device has no room, with PoolError within a `fill` of the same
   * name, and with the reason of `signal`, which ends the wait and not `fill`.
   */
  async region(name: string, options: RegionOptions, fill: (region: Filling) => void | Promise<void>): Promise<Region> {
    if (typeof fill !== 'function') throw new WrongTypeError(`region: fill must be a function, not ${describe(fill)}`)
    const found = await this.foundOrBegun('region', name, options)
    if (found instanceof Region) return found
    try {
      await this.scopes.run(name, () => fill(found))
      return (await this.commit([found]))[0]
    } finally {
      this.forget(found)
    }
  }

  /**
   * The region of that name, which must be whole. Rejects with KeepError 'absent' for an unknown region, and
   * 'unfinished' if its last writer has ended before the commit.
   */
  async attach(name: string, options: AttachOptions = {}): Promise<Region> {
    const signal = signalOf('attach', options, ['version'])
    const { version } = options
    checkName('attach', name)
    checkVersion('attach', version)
    if (this.scopes.includes(name)) await this.checkReady(name, version)
    const found = await this.find({ name, purpose: 'read', version, signal, device: this.ownDevice })
    if (found.kind === 'lease') throw new KeepError(`attach: the keeper has no region ${shownName(name)}`, 'absent')
    return this.attached(name, found)
  }

  /**
   * Begins to fill a region, which is committed with others by `commit`. Waits for another process that fills it.
   * Rejects with PoolError if the region is there in this version, and otherwise like `region`. Processes that begin
   * several regions must begin them in the same order, or they wait for each other.
   */
  async begin(name: string, options: RegionOptions): Promise<Filling> {
    const found = await this.foundOrBegun('begin', name, options)
    if (!(found instanceof Region)) return found
    found.close()
    throw new PoolError(
      `begin: region ${shownName(name)} is there in version ${shownName(found.version)}; attach it, or name another version`,
    )
  }

  /**
   * Makes regions visible to all processes: all, or none; at most 250 in one call. It waits for the work of this
   * thread's streams first; other threads that fill must have finished. Rejects with KeepError, and the regions are
   * abandoned then.
   */
  async commit(regions: readonly Filling[]): Promise<Region[]> {
    this.checkFillings(regions)
    if (regions.length === 0) return []
    for (const filling of regions) filling.end()
    const filled: ReturnType<Filling['finish']>[] = []
    try {
      await this.device.finished()
      for (const filling of regions) filled.push(filling.finish())
      await this.client.commit(filled)
    } catch (error) {
      for (const filling of regions) this.forget(filling)
      for (const { pieces } of filled) closePieces(pieces)
      throw error
    }
    return regions.map((filling, index) => {
      this.fillings.delete(filling)
      return this.remembered(Region.filled(this.client, filling, filled[index].pieces))
    })
  }

  /**
   * The file of that name and version, in memory of the host: for a tokenizer, or a model that another library reads.
   * The first process to ask for it writes it by `fill`, to the path that it gets; the others wait for it. If `fill`
   * throws, nothing is kept, the next in line fills it, and the call rejects with its error. Rejects with KeepError,
   * with PoolError for an empty file or within a `fill` of the same name, and with the reason of `signal`, which ends
   * the wait and not `fill`.
   */
  async file(name: string, options: RegionOptions, fill: (path: string) => void | Promise<void>): Promise<KeptFile> {
    if (typeof fill !== 'function') throw new WrongTypeError(`file: fill must be a function, not ${describe(fill)}`)
    const { bytes, ...wanted } = readWanted('file', name, options, this.device.context)
    this.checkNotFilled('file', name)
    const found = await this.find({ ...wanted, bytes, device: hostMemory() })
    if (found.kind === 'ready') return this.remembered(KeptFile.found(this.client, name, found))
    const { version } = wanted
    const lease = { name, version, generation: found.generation }
    const file = await KeptFile.filled(this.client, lease, path => this.scopes.run(name, () => fill(path)))
    if (!this.isClosed) return this.remembered(file)
    file.close()
    throw closedMeanwhile()
  }

  /** All regions that the keeper has, of all devices. */
  list(): Promise<RegionInfo[]> {
    return this.client.list()
  }

  /**
   * Drops a region: its memory goes with its last reader. With `force`, a filling by another process is ended, too.
   * Rejects with KeepError 'absent' for an unknown region.
   */
  async drop(name: string, options: { readonly force?: boolean } = {}): Promise<void> {
    checkOptionNames('drop', options, ['force'])
    checkName('drop', name)
    const { force = false } = options
    checkFlag('drop: force', force)
    await this.client.drop(name, { force })
  }

  /** Drops regions without readers that the rule names; returns them. */
  async prune(rule: PruneRule): Promise<RegionInfo[]> {
    checkOptionNames('prune', rule, ['unusedMs', 'unfinished', 'name', 'all'])
    const { unusedMs, unfinished = false, name, all = false } = rule
    if (name !== undefined) checkName('prune', name)
    checkFlag('prune: unfinished', unfinished)
    checkFlag('prune: all', all)
    if (unusedMs !== undefined) within(unusedMs, 0, Number.MAX_SAFE_INTEGER, 'prune: unusedMs')
    return this.client.prune(rule)
  }

  /**
   * Calls `listener` for each change of a region, until the result is disposed. An error of it is uncaught. Throws
   * KeepError 'gone' after `close`.
   */
  watch(listener: (event: KeepEvent) => void): Disposable {
    if (typeof listener !== 'function') {
      throw new WrongTypeError(`watch: listener must be a function, not ${describe(listener)}`)
    }
    if (this.isClosed) throw closedMeanwhile()
    return this.client.watch(listener)
  }

  /**
   * What this process has of the regions; null after `close`.
   * @internal
   */
  held(): HeldRegion[] | null {
    if (this.isClosed) return null
    const fillings = [...this.fillings].map(each => ({ each, here: 'filling' }) as const)
    const regions = [...this.regions].map(each => ({ each, here: each.created ? 'filled' : 'attached' }) as const)
    const open = [...fillings, ...regions].filter(({ each }) =>
      each instanceof KeptFile ? !each.closed : !each.buffer.freed,
    )
    return open.map(({ each, here }) => {
      const { name, version, generation } = each
      const { byteLength: bytes } = each instanceof KeptFile ? each : each.buffer
      return { name, version, generation, bytes, here }
    })
  }

  /** Abandons what is being filled, closes its regions, and ends the connection. A second close does nothing. */
  close(): void {
    this.isClosed = true
    for (const filling of this.fillings) this.forget(filling)
    for (const region of this.regions) region.close()
    this.regions.clear()
    this.client.close()
  }

  /** `close()` at the end of a `using` block. */
  [Symbol.dispose](): void {
    this.close()
  }

  /** One line for people, such as `Keep { 2 regions, 1 being filled }`; console.log shows it. */
  toString(): string {
    return `Keep { ${this.isClosed ? 'closed' : `${this.openRegions} regions, ${this.fillings.size} being filled`} }`
  }

  /** The plain values that JSON.stringify writes. */
  toJSON(): object {
    return { regions: this.openRegions, filling: this.fillings.size, closed: this.isClosed }
  }

  private get openRegions(): number {
    return [...this.regions].filter(region => !region.closed).length
  }

  private async foundOrBegun(call: string, name: string, options: RegionOptions): Promise<Region | Filling> {
    const { bytes: most, ...wanted } = readWanted(call, name, options, this.device.context)
    this.checkNotFilled(call, name)
    const bytes = Math.ceil(most / UNIT_BYTES) * UNIT_BYTES
    const { version } = wanted
    const found = await this.find({ ...wanted, bytes, device: this.ownDevice })
    if (found.kind === 'lease') return this.begun({ name, version, generation: found.generation }, bytes, wanted.signal)
    const region = this.attachedUnlessLost(name, found)
    if (region === null) return this.foundOrBegun(call, name, options) // the keeper has dropped it
    if (found.bytes === bytes) return region
    region.close()
    throw new KeepError(
      `${call}: ${shownName(name)} has ${formatBytes(found.bytes)} in version ${shownName(version)}, not ${formatBytes(bytes)}; name another version`,
      'size',
    )
  }

  private get ownDevice(): KeptDevice {
    const { totalBytes, simulated, properties } = this.device
    return { uuid: properties.uuid, totalBytes, simulated }
  }

  private async find(request: FindRequest): Promise<Found> {
    const found = await this.client.find(request)
    if (!this.isClosed) return found
    if (found.kind === 'ready') closePieces(found.pieces)
    throw closedMeanwhile()
  }

  /** Makes the memory of a leased region, if need be once that of closed regions is free. */
  private async begun(
    lease: { readonly name: string; readonly version: string; readonly generation: number },
    bytes: number,
    signal: AbortSignal | undefined,
  ): Promise<Filling> {
    const open = () => {
      if (this.isClosed) throw closedMeanwhile()
      const filling = Filling.open(this.device, this.client, lease, bytes, this.granuleBytes)
      this.fillings.add(filling)
      this.memory.note(filling.buffer)
      return filling
    }
    try {
      return await this.memory.withRoom(open, () => this.isClosed, signal)
    } catch (error) {
      this.client.abandon(lease.generation).catch(() => {}) // the first error helps more
      throw error
    }
  }

  private checkNotFilled(call: string, name: string): void {
    if (this.scopes.includes(name)) throw filledHere(call, name)
  }

  /** Within a `fill` of the same name only what is ready can be attached. */
  private async checkReady(name: string, version: string | undefined): Promise<void> {
    const isWanted = (each: RegionInfo) => each.name === name && (version === undefined || each.version === version)
    const all = await this.list()
    if (!all.some(each => each.state === 'ready' && isWanted(each))) throw filledHere('attach', name)
  }

  private attached(name: string, found: Extract<Found, { kind: 'ready' }>): Region {
    const region = Region.attached(this.device, this.client, name, found, this.granuleBytes)
    this.memory.note(region.buffer)
    return this.remembered(region)
  }

  /** The region; null if its memory is gone, which the keeper was told. */
  private attachedUnlessLost(name: string, found: Extract<Found, { kind: 'ready' }>): Region | null {
    try {
      return this.attached(name, found)
    } catch (error) {
      if (error instanceof KeepError && error.code === 'lost') return null
      throw error
    }
  }

  private remembered<R extends Region | KeptFile>(region: R): R {
    for (const other of this.regions) {
      if (!other.closed) continue
      other.close() // after its device was closed, it still has descriptors
      this.regions.delete(other)
    }
    this.regions.add(region)
    return region
  }

  /** Abandons a filling unless it is committed. */
  private forget(filling: Filling): void {
    this.fillings.delete(filling)
    filling.abandon()
  }

  private checkFillings(regions: readonly Filling[]): void {
    if (!Array.isArray(regions)) {
      throw new WrongTypeError(`commit: regions must be an array of what begin returned, not ${describe(regions)}`)
    }
    if (regions.length > MOST_DESCRIPTORS) {
      throw new OutOfRangeError(`commit: at most ${MOST_DESCRIPTORS} regions at a time, not ${regions.length}`)
    }
    for (const filling of regions) {
      if (!(filling instanceof Filling)) {
        throw new WrongTypeError(`commit: regions must come from begin, not ${describe(filling)}`)
      }
      filling.checkOpen('commit')
      if (!this.fillings.has(filling))
        throw new PoolError(`commit: region ${shownName(filling.name)} was begun with another keep; commit it there`)
    }
    const twice = regions.find((each, index) => regions.indexOf(each) < index)
    if (twice !== undefined) throw new OutOfRangeError(`commit: region ${shownName(twice.name)} is named twice`)
  }
}

showAsText(Keep)

function closedMeanwhile(): KeepError {
  return new KeepError('the keep was closed by this program meanwhile; open it again', 'gone')
}

function filledHere(call: string, name: string): PoolError {
  return new PoolError(`${call}: the code that runs fills ${shownName(name)} itself; use what fill gets`)
}
