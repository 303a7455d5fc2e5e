// A keeper hands all over to a successor: its state, its listening socket and its lock, the sockets of its clients, and
// the descriptors that it keeps. Clients notice nothing. Until the successor has confirmed, either of both can end.

import { KeepError } from '../base/errors.js'
import { readSealed, sealedFile } from '../libraries/sealed-memory.js'
import { closeDescriptor } from '../libraries/system-calls.js'
import { MOST_DESCRIPTORS, UnixSocket } from '../libraries/unix-socket.js'
import { Channel } from './channel.js'
import { Connection, KeeperGone, USUAL_TIMEOUT_MS } from './connection.js'
import { ANSWERS, COUNT } from './messages.js'
import { fields, flag, listOf } from './shape.js'
import type { Place } from './socket-path.js'
import type { KeptRegions } from './state/kept-regions.js'
import { type Snapshot, snapshotIn, snapshotOf } from './state/snapshot.js'

/** 10,000 regions have some MiB. */
const MOST_STATE_BYTES = 2 ** 28

const CLIENTS = listOf(fields({ pid: COUNT, version: COUNT, isWatching: flag, hasBell: flag }), Infinity)

/** All that a keeper hands over, in the order of its parts. */
export class Heritage {
  private readonly state: number
  private readonly descriptors: readonly number[]
  private given = 0

  constructor(place: Place, keeper: number, regions: KeptRegions, channels: readonly Channel[]) {
    const generations = [...regions.generations.values()]
    const clients = channels.map(({ pid, version, isWatching, bell }) => {
      return { pid, version, isWatching, hasBell: bell !== null }
    })
    const snapshot = snapshotOf(regions, keeper, generations, channels)
    this.state = sealedFile('cuda-mempool-keeper', Buffer.from(JSON.stringify({ ...snapshot, clients })))
    this.descriptors = [
      this.state,
      place.listener.descriptor,
      place.lock!,
      ...channels.flatMap(({ descriptor, bell }) => (bell === null ? [descriptor] : [descriptor, bell.descriptor])),
      ...generations.flatMap(each => each.descriptors),
    ]
  }

  get count(): number {
    return this.descriptors.length
  }

  /** Whether the last part was asked for. */
  get isGiven(): boolean {
    return this.given >= this.descriptors.length
  }

  partFrom(first: number): readonly number[] {
    this.given = first + MOST_DESCRIPTORS
    return this.descriptors.slice(first, first + MOST_DESCRIPTORS)
  }

  close(): void {
    closeDescriptor(this.state)
  }
}

/** All that a successor has from a keeper. */
export interface Inheritance {
  readonly place: Place
  readonly channels: readonly Channel[]
  readonly snapshot: Snapshot
  /** of the generations, in their order */
  readonly descriptors: readonly number[]
  /** Lets the keeper end. Rejects if it wants to go on; then nothing may be used. */
  confirm(): Promise<void>
}

/** Takes over from the keeper at `path`; null without a keeper. Throws KeepError, and leaves all to it then. */
export async function inheritedFrom(path: string): Promise<Inheritance | null> {
  const connection = await Connection.open(path, { timeoutMs: USUAL_TIMEOUT_MS })
  if (connection === null) return null
  const options = { timeoutMs: USUAL_TIMEOUT_MS, what: 'the keeper does not hand over' }
  const received: number[] = []
  try {
    for (let count = 1; received.length < count; ) {
      const answer = await connection.request('handover', { first: received.length }, options)
      received.push(...answer.descriptors)
      count = ANSWERS.handover(answer.body, 'the answer').descriptors
      if (answer.descriptors.length === 0)
        throw new KeepError('the keeper handed over too little; try again', 'protocol')
    }
    const [state, listener, lock, ...others] = received
    const text = readSealed(state, MOST_STATE_BYTES)
    closeDescriptor(state)
    const clients = CLIENTS(JSON.parse(Buffer.from(text).toString()).clients, 'the clients of the keeper')
    const channels = clients.map(({ pid, version, isWatching, hasBell }) => {
      const channel = new Channel(UnixSocket.of(others.shift()!), pid)
      if (hasBell) channel.bell = UnixSocket.of(others.shift()!)
      return Object.assign(channel, { version, isWatching })
    })
    const place = { listener: UnixSocket.of(listener, path), lock }
    return { place, channels, snapshot: snapshotIn(text), descriptors: others, confirm: () => confirmed(connection) }
  } catch (error) {
    received.forEach(closeDescriptor)
    connection.end()
    throw error instanceof KeeperGone
      ? new KeepError('the keeper ended before it had handed over; start anew', 'gone')
      : error
  }
}

/** Says that all was taken. A keeper that has ended meanwhile keeps nothing either. */
async function confirmed(connection: Connection): Promise<void> {
  try {
    await connection.request('taken', {}, { timeoutMs: USUAL_TIMEOUT_MS, what: 'the keeper does not end' })
  } catch (error) {
    if (!(error instanceof KeeperGone)) throw error
  } finally {
    connection.end()
  }
}
