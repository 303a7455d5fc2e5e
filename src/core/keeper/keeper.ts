// The keeper's process: waits for packets of its clients, changes the state by them, and answers. It holds descriptors
// of device memory and loads no driver. Nothing runs while no client asks.

import { fstatSync } from 'node:fs'
import { DescriptorError, KeepError } from '../base/errors.js'
import { Poller } from '../libraries/poller.js'
import { dropCode } from '../libraries/resident-code.js'
import { closeDescriptor } from '../libraries/system-calls.js'
import { UnixSocket } from '../libraries/unix-socket.js'
import { Channel, type Incoming } from './channel.js'
import { Entrance } from './entrance.js'
import { Heritage, type Inheritance, inheritedFrom } from './handover.js'
import { REQUESTS } from './messages.js'
import { openFiles } from './open-files.js'
import { commonVersion, VERSIONS, type Versions } from './protocol.js'
import type { KeepEvent } from './region.js'
import { answerTo, found, offered, sealed } from './requests.js'
import { listenAlone, listenAt, nameListener, usualSocketPath } from './socket-path.js'
import type { Generation } from './state/generation.js'
import { type Effects, KeptRegions, type Outcome } from './state/kept-regions.js'
import type { Limits } from './state/quota.js'
import { restore, type Snapshot } from './state/snapshot.js'
import type { DescriptorStore } from './store/descriptor-store.js'
import type { ServiceManager } from './store/service-manager.js'

/** All others wait meanwhile. 10,000 regions take less than a second. */
const LONGEST_HANDOVER_MS = 10_000
/** A keeper without requests for this long gives back the memory of its code. */
const RESTS_AFTER_MS = 2000

export interface KeeperOptions {
  readonly path: string
  readonly limits: Limits
  /** the only user who may connect; default this process's */
  readonly user?: number
}

export class Keeper {
  readonly regions: KeptRegions
  private readonly entrance: Entrance
  private readonly poller: Poller
  private readonly channels = new Map<number, Channel>()
  private isEnding = false
  private readonly mostConnections = openFiles().connections
  /** that of the first of the keepers that took over from each other */
  private readonly number: number
  /** the successor that all is handed over to: only its requests are served */
  private heir: Channel | null = null
  private heritage: Heritage | null = null
  private isTaken = false
  /** has copies of the descriptors, in a service manager */
  private readonly store: DescriptorStore | null

  constructor(
    private readonly options: KeeperOptions,
    inherited: Inheritance | null = null,
    private readonly manager: ServiceManager | null = null,
  ) {
    const { listener = null, store = null } = manager ?? {}
    const { path } = options
    const place = inherited?.place ?? (listener === null ? listenAlone(path) : listenAt(listener, path))
    this.entrance = new Entrance(place)
    this.store = store
    this.number = inherited?.snapshot.keeper ?? store?.snapshot?.keeper ?? Date.now()
    this.poller = new Poller()
    const effects: Effects = {
      answer: (client, request, outcome) => this.answerFind(client as Channel, request, outcome),
      close: descriptors => descriptors.forEach(closeDescriptor),
      tell: (kind, generation) => this.tell(kind, generation),
    }
    // Numbers of later keepers are higher: no generation of another keeper is taken for one of this.
    const next = inherited?.snapshot.next ?? Math.max(Date.now(), store?.snapshot?.next ?? 0)
    const socket = path === usualSocketPath() ? null : path
    this.regions = new KeptRegions(options.limits, effects, next, Date.now, socket)
    if (inherited !== null) this.inherit(inherited)
    store?.restoreTo(this.regions)
    this.save()
    this.serveAll()
  }

  /** Takes over from the keeper at the path; without a keeper there a new one starts. */
  static async takeOver(options: KeeperOptions, manager: ServiceManager | null = null): Promise<Keeper> {
    const inherited = await inheritedFrom(options.path)
    const keeper = new Keeper(options, inherited, manager)
    await inherited?.confirm()
    if (inherited !== null) nameListener(inherited.place)
    return keeper
  }

  /** Serves until `end` is called. */
  async run(): Promise<void> {
    const notifications = this.manager?.notifications
    notifications?.send([{ text: 'READY=1' }])
    const rest = setTimeout(dropCode, RESTS_AFTER_MS).unref()
    while (!this.isEnding) {
      rest.refresh()
      notifications?.watch(this.poller)
      const ready = await this.poller.wait()
      // A client that learnt of the end of a process must not see it in an answer: ended ones come first.
      ready.sort((one, other) => Number(other.ended) - Number(one.ended))
      for (const { descriptor, readable, writable, ended } of ready) {
        if (notifications?.proceed(descriptor, this.poller) === true) continue
        const channel = this.clientOf(descriptor)
        if (this.heir !== null && channel !== this.heir) continue
        if (channel === undefined) this.accept()
        else if (writable) channel.flush()
        // A bell ends with the thread of its client, whose socket stays open until the process ends.
        if (ended && channel !== undefined) {
          while (this.serve(channel)) {}
          channel.isOpen = false
          this.endGone()
        } else if (channel !== undefined && readable) this.serve(channel)
      }
      this.settle()
    }
    clearTimeout(rest)
    notifications?.send([{ text: 'STOPPING=1' }])
    this.close()
  }

  /** Ends `run`. */
  end(): void {
    this.isEnding = true
    this.poller.wake()
  }

  private accept(): void {
    for (;;) {
      const socket = this.entrance.accept()
      if (socket === null) return
      const { pid, user } = socket.peer()
      const own = this.options.user ?? process.geteuid!()
      const channel = new Channel(socket, pid)
      if (user !== own) this.refuse(channel, `the keeper is of user ${own}, and this process of user ${user}`, 'user')
      else if (this.channels.size >= this.mostConnections)
        this.refuse(channel, `the keeper has ${this.mostConnections} connections; end some processes`, 'quota')
      else {
        this.channels.set(channel.descriptor, channel)
        this.watch(channel)
      }
    }
  }

  private refuse(channel: Channel, message: string, code: KeepError['code']): void {
    channel.send('error', 0, { code, message })
    channel.close()
  }

  /** Answers a request; then other clients have their turn. False without one. */
  private serve(channel: Channel): boolean {
    let incoming: Incoming | null = null
    try {
      if (channel.isOpen) incoming = channel.receive()
    } catch (error) {
      channel.send('error', 0, refusalOf(error))
      channel.isOpen = false
    }
    if (incoming !== null) this.answer(channel, incoming)
    return incoming !== null
  }

  private answer(channel: Channel, incoming: Incoming): void {
    const { type, request, version, descriptors } = incoming
    try {
      if (type === 'hello') this.greet(channel, incoming)
      else if (channel.version === 0 || version !== channel.version)
        throw new KeepError(`${type}: hello comes first, and then packets of the version that was agreed`, 'protocol')
      else if (type === 'commit') this.publish(channel, request, sealed(this.regions, channel, incoming), {})
      else if (type === 'offer') {
        const { generations, wanted } = offered(this.regions, channel, incoming)
        this.publish(channel, request, generations, { wanted })
      } else if (type === 'handover') this.handOver(channel, incoming)
      else if (type === 'taken') this.leave(channel, request)
      else {
        const answer = answerTo(this.regions, channel, incoming)
        const send = () => {
          if (answer !== null) channel.send('ok', request, answer.body, answer.descriptors)
        }
        if (type === 'drop' || type === 'prune') this.whenFree(send)
        else {
          this.save()
          send()
        }
      }
    } catch (error) {
      channel.send('error', request, refusalOf(error))
    } finally {
      descriptors.forEach(closeDescriptor)
    }
  }

  private greet(channel: Channel, { request, body, descriptors }: Incoming): void {
    const { versions } = REQUESTS.hello(body, 'hello')
    const version = commonVersion(versions)
    if (version === null) {
      const both = `the keeper speaks ${spoken(VERSIONS)}, and this process ${spoken(versions)}`
      throw new KeepError(`${both}; update the older one of both`, 'protocol')
    }
    const [bell] = descriptors
    if (bell !== undefined) {
      if (!fstatSync(bell).isSocket()) throw new KeepError('hello: the bell must be a socket', 'protocol')
      descriptors.shift()
      this.forget(channel) // an earlier bell is closed
      channel.hangBell(UnixSocket.of(bell))
    }
    channel.version = version
    channel.send('ok', request, { version, keeper: this.number })
  }

  /** Makes sealed generations ready once they are stored, and then answers. */
  private publish(channel: Channel, request: number, set: readonly Generation[], answer: object): void {
    const { store } = this
    const stored = (refusal: DescriptorError | null) => {
      if (refusal === null) this.regions.publish(set)
      else this.regions.refuse(set)
      this.save()
      if (refusal === null) channel.send('ok', request, answer)
      else channel.send('error', request, { code: 'quota', message: `not stored, begin again: ${refusal.message}` })
    }
    if (store === null || set.length === 0) stored(null)
    else store.add(set, stored)
  }

  private inherit({ channels, snapshot, descriptors }: Inheritance): void {
    let next = 0
    const descriptorsOf = ({ pieces, directory }: Snapshot['generations'][number]) => {
      const first = next
      next += pieces.length + (directory ? 1 : 0)
      return descriptors.slice(first, next)
    }
    for (const channel of channels) this.channels.set(channel.descriptor, channel)
    restore(snapshot, this.regions, channels, descriptorsOf)
  }

  /** Sends a part of all. With the first part all others have to wait. */
  private handOver(channel: Channel, { request, body }: Incoming): void {
    const { first } = REQUESTS.handover(body, 'handover')
    if (this.store !== null)
      throw new KeepError('handover: a service manager has started the keeper; restart it there', 'protocol')
    if (first === 0) {
      for (const each of this.channels.values()) if (each.hasQueued) each.isOpen = false // they connect again
      this.endGone()
      this.heir = channel
      this.heritage?.close()
      this.heritage = new Heritage(this.entrance.place, this.number, this.regions, this.others())
      this.poller.forget(this.entrance.descriptor)
      for (const each of this.others()) this.forget(each)
      setTimeout(() => this.disinherit(channel), LONGEST_HANDOVER_MS).unref()
    }
    if (this.heritage === null || this.heir !== channel)
      throw new KeepError('handover: another successor takes over now; end one of both', 'protocol')
    channel.send('ok', request, { descriptors: this.heritage.count }, this.heritage.partFrom(first))
  }

  /** Ends if the successor is there. */
  private leave(channel: Channel, request: number): void {
    if (channel !== this.heir || this.heritage?.isGiven !== true)
      throw new KeepError('taken: not all was handed over; ask for handover first', 'protocol')
    channel.send('ok', request, {})
    this.isTaken = this.isEnding = channel.isOpen
  }

  /** Goes on without a successor that does not confirm. */
  private disinherit(channel: Channel): void {
    if (this.heir !== channel || this.isEnding) return
    // Without the error it would take the end of the connection for the end of this keeper, and serve, too.
    channel.send('error', 0, { code: 'timeout', message: 'the successor did not confirm in time; try again' })
    channel.isOpen = false
    this.poller.wake()
  }

  private others(): Channel[] {
    return [...this.channels.values()].filter(channel => channel !== this.heir)
  }

  private serveAll(): void {
    this.heir = null
    this.heritage?.close()
    this.heritage = null
    this.poller.watch(this.entrance.descriptor, false)
    for (const channel of this.channels.values()) this.watch(channel)
  }

  /** The client whose socket or bell it is. */
  private clientOf(descriptor: number): Channel | undefined {
    const isBell = ({ bell }: Channel) => bell?.descriptor === descriptor
    return this.channels.get(descriptor) ?? [...this.channels.values()].find(isBell)
  }

  private watch({ descriptor, bell, hasQueued }: Channel): void {
    this.poller.watch(descriptor, hasQueued)
    if (bell !== null) this.poller.watchEnd(bell.descriptor)
  }

  private forget({ descriptor, bell }: Channel): void {
    this.poller.forget(descriptor)
    if (bell !== null) this.poller.forget(bell.descriptor)
  }

  private answerFind(channel: Channel, request: number, outcome: Outcome): void {
    if (outcome.kind === 'refused') channel.send('error', request, refusalOf(outcome.error))
    else {
      const { body, descriptors } = found(outcome)
      const send = () => channel.send('ok', request, body, descriptors)
      if (outcome.kind === 'lease') this.whenFree(send)
      else send()
    }
  }

  /** Sends an answer whose client counts on memory that was dropped: after the service manager has dropped it, too. */
  private whenFree(send: () => void): void {
    this.save()
    if (this.store === null) send()
    else this.store.notifications.send([], send)
  }

  private save(): void {
    this.store?.save(this.regions, this.number)
  }

  /** Readers hear that a region was dropped, too. They do not offer it to the next keeper as a region that is ready. */
  private tell(kind: KeepEvent['kind'], generation: Generation): void {
    this.store?.changed(generation, kind === 'ready')
    for (const channel of this.channels.values()) {
      const isConcerned = generation.readers.has(channel) && kind !== 'ready'
      if (channel.isWatching || isConcerned) channel.send('event', 0, generation.event(kind))
    }
  }

  /** Ends the clients that are gone, saves the state, and waits for those that have something unread. */
  private settle(): void {
    this.endGone()
    this.save()
    if (this.heir === null) this.serveAll()
    else if (this.heir.isOpen) this.watch(this.heir)
    else this.serveAll()
  }

  private endGone(): void {
    for (let gone = this.gone(); gone.length > 0; gone = this.gone()) {
      for (const channel of gone) {
        this.channels.delete(channel.descriptor)
        this.forget(channel)
        this.regions.end(channel)
        channel.close()
      }
    }
  }

  private gone(): Channel[] {
    return [...this.channels.values()].filter(channel => !channel.isOpen)
  }

  private close(): void {
    for (const channel of this.channels.values()) channel.close()
    for (const generation of this.regions.generations.values()) generation.descriptors.forEach(closeDescriptor)
    this.heritage?.close()
    this.store?.close()
    this.manager?.notifications?.close()
    this.entrance.close(this.isTaken)
    this.poller.close()
  }
}

/** An error as clients see it. */
function refusalOf(error: unknown): { code: KeepError['code']; message: string } {
  if (error instanceof KeepError) return { code: error.code, message: error.message }
  if (error instanceof DescriptorError) return { code: 'protocol', message: error.message }
  throw error
}

function spoken({ least, most }: Versions): string {
  return least === most ? `version ${least}` : `versions ${least} to ${most}`
}
