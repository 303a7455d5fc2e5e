// The keeper's end of a connection. Answers wait for a client that does not read them, up to a limit.

import { DescriptorError } from '../base/errors.js'
import { closeDescriptor, duplicateDescriptor } from '../libraries/system-calls.js'
import { MOST_DESCRIPTORS, type UnixSocket } from '../libraries/unix-socket.js'
import { decoded, encoded, type Message, MOST_PACKET_BYTES, type PacketType, VERSIONS } from './protocol.js'
import type { Client } from './state/generation.js'

/** The most that waits for a client; a descriptor counts as a KiB. */
const MOST_QUEUED_BYTES = 2 ** 20
const DESCRIPTOR_BYTES = 1024

/** A request with the descriptors that came with it. Those that are not taken are closed after the answer. */
export interface Incoming extends Message {
  readonly descriptors: number[]
}

interface Queued {
  readonly bytes: Uint8Array
  /** copies: the originals may be closed before the packet is sent */
  readonly descriptors: readonly number[]
}

export class Channel implements Client {
  isOpen = true
  waiting = 0
  /** the version that both sides speak; 0 before `hello` */
  version = 0
  isWatching = false
  /** rings a bell at the client, which then reads; its end is the client's, too */
  bell: UnixSocket | null = null
  private queue: Queued[] = []
  private queuedBytes = 0

  constructor(
    readonly socket: UnixSocket,
    readonly pid: number,
  ) {}

  get descriptor(): number {
    return this.socket.descriptor
  }

  get hasQueued(): boolean {
    return this.queue.length > 0
  }

  /** Takes over the bell. Throws DescriptorError for other files than sockets. */
  hangBell(bell: UnixSocket): void {
    this.bell?.close()
    this.bell = bell
    bell.sendByte()
  }

  /**
   * Sends at once or later. The descriptors may be closed after the call. If sending fails, the client counts as gone:
   * the call never throws, for it is made while the state changes.
   */
  send(type: PacketType, request: number, body: unknown, descriptors: readonly number[] = []): void {
    if (!this.isOpen) return
    const bytes = encoded(type, request, body, this.version || VERSIONS.least)
    if (this.queue.length === 0 && this.sendNow(bytes, descriptors)) return
    this.queuedBytes += bytes.length + DESCRIPTOR_BYTES * descriptors.length
    if (this.queuedBytes > MOST_QUEUED_BYTES) this.isOpen = false
    else this.queueUp(bytes, descriptors)
  }

  /** Sends queued packets until the socket is full. */
  flush(): void {
    while (this.isOpen && this.queue.length > 0 && this.sendNow(this.queue[0].bytes, this.queue[0].descriptors)) {
      const { bytes, descriptors } = this.queue.shift()!
      this.queuedBytes -= bytes.length + DESCRIPTOR_BYTES * descriptors.length
      descriptors.forEach(closeDescriptor)
    }
  }

  /** The next request; null without a request, or a client. Throws KeepError for packets that cannot be read. */
  receive(): Incoming | null {
    const packet = this.socket.receivePacket(MOST_PACKET_BYTES, MOST_DESCRIPTORS)
    if (packet === 'gone') this.isOpen = false
    if (packet === null || packet === 'gone') return null
    try {
      return { ...decoded(packet.bytes, `process ${this.pid}`), descriptors: [...packet.descriptors] }
    } catch (error) {
      packet.descriptors.forEach(closeDescriptor)
      throw error
    }
  }

  close(): void {
    this.isOpen = false
    for (const { descriptors } of this.queue) descriptors.forEach(closeDescriptor)
    this.queue = []
    this.socket.close()
    this.bell?.close()
  }

  private queueUp(bytes: Uint8Array, originals: readonly number[]): void {
    const descriptors: number[] = []
    this.queue.push({ bytes, descriptors })
    this.orClosed(() => originals.forEach(each => void descriptors.push(duplicateDescriptor(each))))
  }

  /** Whether the packet has left, or never will. */
  private sendNow(bytes: Uint8Array, descriptors: readonly number[]): boolean {
    return this.orClosed(() => {
      const result = this.socket.sendPacket(bytes, descriptors)
      if (result === 'gone') this.isOpen = false
      else if (result === 'sent') this.bell?.sendByte()
      return result !== null
    })
  }

  /** The client has to connect again if the system refuses: too many descriptors are open, or on their way. */
  private orClosed<T>(work: () => T): T | true {
    try {
      return work()
    } catch (error) {
      if (!(error instanceof DescriptorError)) throw error
      this.isOpen = false
      return true
    }
  }
}
