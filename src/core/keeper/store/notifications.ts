// Messages to the service manager, as sd_notify(3) describes them: text, and sometimes a descriptor. They arrive in
// their order. No call waits: if the manager's socket is full, they are sent later.

import { DescriptorError } from '../../base/errors.js'
import type { Poller } from '../../libraries/poller.js'
import { closeDescriptor } from '../../libraries/system-calls.js'
import { streamPair, UnixSocket } from '../../libraries/unix-socket.js'

/** Gets the refusal of the system if a message before could not be sent. */
type Done = (refusal: DescriptorError | null) => void

export interface Message {
  readonly text: string
  readonly descriptors?: readonly number[]
}

interface Unsent extends Message {
  /** if it is one: the end that the manager gets is closed after it was sent */
  readonly barrier: Barrier | null
}

interface Barrier {
  /** it ends as soon as the manager has closed the other end */
  readonly descriptor: number
  readonly done: Done
}

export class Notifications {
  private unsent: Unsent[] = []
  /** those that were sent, by their descriptors */
  private readonly barriers = new Map<number, Barrier>()

  private constructor(private readonly socket: UnixSocket) {}

  /** At the address in $NOTIFY_SOCKET; null if no manager listens there. */
  static to(address: string): Notifications | null {
    const socket = UnixSocket.sendingTo(address)
    return socket === null ? null : new Notifications(socket)
  }

  /** `done` is called as soon as the manager has handled them. Until then their descriptors must stay open. */
  send(messages: readonly Message[], done: Done | null = null): void {
    const unsent: Unsent[] = messages.map(message => ({ ...message, barrier: null }))
    try {
      if (done !== null) {
        const [descriptor, theirs] = streamPair()
        unsent.push({ text: 'BARRIER=1', descriptors: [theirs], barrier: { descriptor, done } })
      }
    } catch (error) {
      if (!(error instanceof DescriptorError)) throw error
      done?.(error)
      return
    }
    this.unsent.push(...unsent)
    this.flush()
  }

  /** Adds the descriptors that it waits for. */
  watch(poller: Poller): void {
    if (this.unsent.length > 0) poller.watch(this.socket.descriptor, true)
    else poller.forget(this.socket.descriptor)
    for (const descriptor of this.barriers.keys()) poller.watch(descriptor, false)
  }

  /** Goes on after a descriptor became ready. Whether it is one of these. */
  proceed(descriptor: number, poller: Poller): boolean {
    const barrier = this.barriers.get(descriptor)
    if (barrier !== undefined) {
      poller.forget(descriptor)
      this.end(barrier, null)
    } else if (descriptor !== this.socket.descriptor) return false
    this.flush()
    return true
  }

  close(): void {
    for (const { descriptor } of this.barriers.values()) closeDescriptor(descriptor)
    for (const { barrier, descriptors = [] } of this.unsent) {
      if (barrier !== null) for (const each of [barrier.descriptor, ...descriptors]) closeDescriptor(each)
    }
    this.socket.close()
  }

  private flush(): void {
    while (this.unsent.length > 0) {
      const { text, descriptors = [], barrier } = this.unsent[0]
      try {
        const result = this.socket.sendPacket(Buffer.from(text), descriptors)
        if (result === null) return
        if (result === 'gone') throw new DescriptorError('sendmsg', 'ECONNRESET', 'the service manager has gone')
      } catch (error) {
        if (!(error instanceof DescriptorError)) throw error
        this.giveUp(error)
        return
      }
      this.unsent.shift()
      if (barrier === null) continue
      descriptors.forEach(closeDescriptor)
      this.barriers.set(barrier.descriptor, barrier)
    }
  }

  /** Ends the waits for messages that cannot be sent. */
  private giveUp(refusal: DescriptorError): void {
    const unsent = this.unsent
    this.unsent = []
    for (const { barrier, descriptors = [] } of unsent) {
      if (barrier === null) continue
      descriptors.forEach(closeDescriptor)
      this.end(barrier, refusal)
    }
  }

  private end({ descriptor, done }: Barrier, refusal: DescriptorError | null): void {
    this.barriers.delete(descriptor)
    closeDescriptor(descriptor)
    done(refusal)
  }
}
