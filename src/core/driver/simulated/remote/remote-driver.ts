// The simulated driver of another thread: each call is sent to that thread and waits for its answer. shared-driver.ts
// opens it. Shared host memory is passed by reference. Other host memory is copied with the call, so no asynchronous
// copy reaches it: it cannot be registered, and a copy has completed when its call returns, as with pageable memory.

import { randomUUID } from 'node:crypto'
import type { BroadcastChannel } from 'node:worker_threads'
import { WrongTypeError } from '../../../base/argument-errors.js'
import { CudaError, DeviceLostError, PoolError } from '../../../base/errors.js'
import { checkStack } from '../../../base/stack.js'
import { openChannel, take } from '../../../threads/broadcast-channel.js'
import { uncarry } from '../../../threads/carried-error.js'
import { hasEnded, markOfThread } from '../../../threads/os-thread.js'
import { RESULT } from '../../constants.js'
import type { CallName, Driver } from '../../driver.js'
import { servesOthers, serveWaiting } from '../../serve-waiting.js'
import { CALL_NAMES } from '../../table.js'
import { bytesOf } from '../memory/device-memory.js'
import { hostAddress } from '../memory/host-address.js'
import { HostPlaces } from '../memory/host-places.js'
import type { SimulatedDriver } from '../simulated-driver.js'
import type { Answer, Call, Hello } from './call-channel.js'

/** Members of SimulatedDriver beside the contract that other threads can call. */
const FOR_TESTS = [
  'failCall',
  'clearFaults',
  'holdOperation',
  'releaseThrough',
  'passTime',
  'usedBytes',
  'usedHostBytes',
] as const

/** A simulated driver of another thread. */
export type RemoteDriver = Driver & Pick<SimulatedDriver, (typeof FOR_TESTS)[number]>

type Forward = (...args: readonly unknown[]) => unknown

/** interval for checks that the owning thread lives */
const LIVENESS_CHECK_MS = 100
/** interval for answering calls to this thread's own drivers while it waits */
const SERVE_INTERVAL_MS = 1
const WORD_BYTES = 4
const OWNER_ENDED = 'the thread that opened the simulated driver has ended: keep it while others use the device'

/** Connects to the driver served under `name` by the thread with the mark `owner`. */
export function openRemote(name: string, owner: string, origin: string): RemoteDriver {
  const connection = new Connection(name, owner)
  const names: readonly string[] = [...CALL_NAMES, 'usersOf', 'hostNodes', 'placeHost', 'unplaceHost', ...FOR_TESTS]
  const forwards = Object.fromEntries(
    names.map((member): [string, Forward] => [
      member,
      (...args) => connection.call({ member, args: args.map(outgoing) }),
    ]),
  )
  return Object.assign(new RemoteMembers(connection, origin), forwards, writersOf(connection), {
    cuMemHostRegister(host: ArrayBufferView, flags: number): void {
      if (!(host.buffer instanceof SharedArrayBuffer) || host.buffer.byteLength < WORD_BYTES) {
        throw new WrongTypeError(
          'cuMemHostRegister: host must lie in a SharedArrayBuffer of at least 4 bytes: a simulated device reaches no other memory of this thread',
        )
      }
      connection.call({ member: 'cuMemHostRegister', args: [host, flags] })
    },
  }) as unknown as RemoteDriver
}

/** Copies to the host: into memory of this thread with the answer, or into shared memory when the copy runs. */
function writersOf(connection: Connection): Partial<Driver> {
  const write = (member: CallName, target: ArrayBufferView, args: readonly unknown[]) => {
    if (target.buffer instanceof SharedArrayBuffer) connection.call({ member, args: [target, ...args] })
    else connection.call({ member, args: [null, ...args], targetBytes: target.byteLength }, bytesOf(target))
  }
  return {
    cuMemcpyDtoH: (target, source) => write('cuMemcpyDtoH', target, [source]),
    cuMemcpyDtoHAsync: (target, source, stream) => write('cuMemcpyDtoHAsync', target, [source, stream]),
  }
}

/** An argument as it is sent. Parts of buffers are copied: a clone of a view would include the whole buffer. */
function outgoing(value: unknown): unknown {
  if (ArrayBuffer.isView(value)) {
    const isWhole = value.byteLength === value.buffer.byteLength
    return isWhole || value.buffer instanceof SharedArrayBuffer ? value : bytesOf(value).slice()
  }
  if (Array.isArray(value)) return value.map(outgoing)
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, outgoing(inner)]))
}

/** Members that are not driver functions. */
class RemoteMembers implements Pick<Driver, 'simulated' | 'origin' | 'calls' | 'hostAddress' | 'fillHost'> {
  readonly simulated = true
  /** by buffer: its address in the owning thread */
  private readonly addresses = new WeakMap<SharedArrayBuffer, number>()

  constructor(
    private readonly connection: Connection,
    readonly origin: string,
  ) {}

  get calls(): ReadonlyMap<string, number> {
    return this.connection.call({ member: 'calls', args: [] }) as ReadonlyMap<string, number>
  }

  get modelledSeconds(): number {
    return this.connection.call({ member: 'modelledSeconds', args: [] }) as number
  }

  /** For registered shared memory, the same address in every thread. */
  hostAddress(host: ArrayBufferView): number {
    const { buffer } = host
    if (!(buffer instanceof SharedArrayBuffer)) return hostAddress(host)
    let address = this.addresses.get(buffer)
    if (address === undefined) {
      address = this.connection.call({ member: 'hostAddress', args: [new Uint8Array(buffer)] }) as number
      this.addresses.set(buffer, address)
    }
    return address + host.byteOffset
  }

  async fillHost(host: ArrayBufferView): Promise<void> {
    await new HostPlaces().fill(host)
  }
}

/** The connection to the owning thread. */
class Connection {
  private readonly answered = new Int32Array(new SharedArrayBuffer(WORD_BYTES))
  private readonly end: BroadcastChannel
  private ended = false
  private calls = 0

  constructor(
    name: string,
    private readonly owner: string,
  ) {
    const channel = `${name} ${randomUUID()}`
    this.end = openChannel(channel)
    const reception = openChannel(name)
    const hello: Hello = { channel, mark: markOfThread(), answered: this.answered }
    reception.postMessage(hello)
    reception.close()
    if (this.wait()) return
    this.end.close()
    throw new PoolError(`connectDriver: ${OWNER_ENDED}`, 'ERR_DEVICE_CLOSED')
  }

  /** The result of a call; bytes that the other thread returns for the host are copied to `target`. */
  call(call: Omit<Call, 'number'>, target?: Uint8Array): unknown {
    checkStack()
    const number = ++this.calls
    if (!this.ended) this.end.postMessage({ ...call, number } satisfies Call)
    const answer = this.ended ? null : this.answerTo(number)
    if (answer === null) {
      this.ended = true
      const code = RESULT.CUDA_ERROR_DEINITIALIZED
      throw new DeviceLostError(new CudaError(call.member, code, 'CUDA_ERROR_DEINITIALIZED', OWNER_ENDED))
    }
    if (answer.error !== undefined) throw uncarry(answer.error)
    if (answer.target !== undefined) target?.set(answer.target)
    return answer.result
  }

  /** The answer of the other thread; null if the thread has ended. */
  private answerTo(number: number): Answer | null {
    for (;;) {
      const answer = take<Answer>(this.end)
      if (answer?.number === number) return answer
      if (answer === undefined && !this.wait()) return null
    }
  }

  /** Waits for the other thread, and answers calls to this thread meanwhile. False if the other has ended. */
  private wait(): boolean {
    const intervalMs = servesOthers() ? SERVE_INTERVAL_MS : LIVENESS_CHECK_MS
    let waited = 0
    while (Atomics.wait(this.answered, 0, 0, intervalMs) === 'timed-out') {
      serveWaiting()
      waited += intervalMs
      if (waited % LIVENESS_CHECK_MS === 0 && hasEnded(this.owner)) return false
    }
    Atomics.store(this.answered, 0, 0)
    return true
  }
}
