// A service manager for tests, as systemd is one: it has a notify socket, stores descriptors, drops those that it has
// already, and passes them to the processes that it starts, behind the socket at which they listen.

import assert from 'node:assert/strict'
import { fstatSync } from 'node:fs'
import { Poller } from '../../libraries/poller.js'
import { memoryFile } from '../../libraries/sealed-memory.js'
import { closeDescriptor, openSystem } from '../../libraries/system-calls.js'
import { UnixSocket } from '../../libraries/unix-socket.js'
import { Actor, type Passed } from '../keeper.fixture.js'

const AF_UNIX = 1
const SOCK_DGRAM = 2
const NONBLOCK_CLOEXEC = 0x80800
const F_SETFL = 4
const SOCKET_NAME = 'cuda-mempool-keep.socket'

interface Stored {
  readonly name: string
  readonly descriptor: number
}

export class TestManager {
  /** the messages of processes, such as `READY=1` */
  readonly told: string[] = []
  readonly stored: Stored[] = []
  /** whether barriers are left open, as if the manager was slow */
  isSlow = false
  private readonly barriers: number[] = []
  private readonly poller = new Poller()
  private readonly socket: UnixSocket
  private readonly listener: UnixSocket
  private isEnding = false
  private readonly running: Promise<void>

  /** Its notify socket is at `address`, a path, and its keepers listen at `path`. */
  constructor(
    private readonly address: string,
    readonly path: string,
    private readonly most = 1000,
  ) {
    const { calls } = openSystem()
    const descriptor = calls.socket(AF_UNIX, SOCK_DGRAM | NONBLOCK_CLOEXEC, 0)
    const bytes = Buffer.concat([Buffer.from([AF_UNIX, 0]), Buffer.from(address), Buffer.alloc(1)])
    assert.equal(calls.bind(descriptor, bytes, bytes.length), 0)
    this.socket = UnixSocket.of(descriptor, address)
    this.listener = UnixSocket.listenAt(path)
    // systemd passes sockets that wait.
    assert.equal(calls.fcntl(this.listener.descriptor, F_SETFL, 'int', 0), 0)
    this.running = this.run()
  }

  get names(): string[] {
    return this.stored.map(each => each.name).sort()
  }

  /** A keeper that gets the stored descriptors. */
  start(...args: readonly string[]): Actor {
    return new Actor(['keeper', this.path, ...args], this.passed())
  }

  /** Variables and descriptors for the processes that it starts. */
  passed(): Passed {
    const { stored } = this
    const names = [SOCKET_NAME, ...stored.map(each => each.name)]
    const env = {
      NOTIFY_SOCKET: this.address,
      FDSTORE: String(this.most),
      LISTEN_FDS: String(names.length),
      LISTEN_FDNAMES: names.join(':'),
    }
    return { env, descriptors: [this.listener.descriptor, ...stored.map(each => each.descriptor)] }
  }

  /** Closes the barriers that were left open. */
  hurry(): void {
    this.isSlow = false
    this.barriers.splice(0).forEach(closeDescriptor)
  }

  /** Stores a file that no state knows. */
  storeOther(name: string): void {
    this.stored.push({ name, descriptor: memoryFile(name) })
  }

  async close(): Promise<void> {
    this.isEnding = true
    this.poller.wake()
    await this.running
    this.hurry()
    for (const { descriptor } of this.stored) closeDescriptor(descriptor)
    this.socket.close()
    this.listener.close()
    this.poller.close()
  }

  private async run(): Promise<void> {
    this.poller.watch(this.socket.descriptor, false)
    while (!this.isEnding) {
      await this.poller.wait()
      for (;;) {
        const packet = this.socket.receivePacket(4096, 250)
        if (packet === null || packet === 'gone') break
        this.handle(Buffer.from(packet.bytes).toString(), packet.descriptors)
      }
    }
  }

  private handle(text: string, descriptors: readonly number[]): void {
    this.told.push(text)
    const name = /^FDNAME=([^:\n]{1,255})$/m.exec(text)?.[1] ?? 'stored'
    if (text === 'BARRIER=1') this.barriers.push(...descriptors)
    else if (text.startsWith('FDSTORE=1\n')) for (const each of descriptors) this.store(name, each)
    else if (text.startsWith('FDSTOREREMOVE=1\n')) {
      for (const each of this.stored.filter(other => other.name === name)) {
        closeDescriptor(each.descriptor)
        this.stored.splice(this.stored.indexOf(each), 1)
      }
    }
    if (!this.isSlow) this.hurry()
  }

  private store(name: string, descriptor: number): void {
    const { dev, ino } = fstatSync(descriptor)
    const isKnown = this.stored.some(each => {
      const other = fstatSync(each.descriptor)
      return other.dev === dev && other.ino === ino
    })
    if (isKnown || this.stored.length === this.most) closeDescriptor(descriptor)
    else this.stored.push({ name, descriptor })
  }
}
