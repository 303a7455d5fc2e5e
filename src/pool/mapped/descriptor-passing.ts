// How memory goes from the process that owns it to one that opens it: both name a path, and what passes there is a file
// descriptor of the driver's with a few words of what it stands for. The two stay connected, so that the owner can tell
// when the other has closed what it opened, or has ended. The simulated device is one process: there the descriptor is a
// number of the simulated driver's, and no socket is made.

import { describe } from '../../base/bytes.js'
import { CudaError, DescriptorError, PoolError } from '../../base/errors.js'
import { RESULT } from '../../driver/constants.js'
import type { Context } from '../../driver/context.js'
import type { Driver } from '../../driver/driver.js'
import {
  acceptDescriptor,
  type Connection,
  checkPath,
  closeDescriptor,
  deadlineOf,
  lookUntil,
  offerDescriptor,
  type PassOptions,
} from '../../libraries/descriptors.js'

export type { Connection, PassOptions }

/** What a descriptor stands for. */
export interface Announcement {
  readonly kind: 'buffer' | 'pool'
  /** the same whenever the same thing is handed over, and of nothing else */
  readonly id: string
  /** bytes asked for, and bytes of memory behind them; 0 of a pool */
  readonly byteLength: number
  readonly memoryBytes: number
}

interface Offer {
  readonly descriptor: number
  readonly message: Uint8Array<ArrayBuffer>
  connection: Connection | null
}

/** by simulated driver and path: what waits to be opened */
const offers = new WeakMap<Driver, Map<string, Offer>>()
/** what this process has open */
const openIds = new Set<string>()

/** Refuses what is no path, or no options, before anything is done. */
export function checkShare(call: string, path: string, options: PassOptions): void {
  checkPath(path)
  if (typeof options !== 'object' || options === null) {
    throw new TypeError(`${call}: options must be an object such as { timeoutMs }, not ${describe(options)}`)
  }
  deadlineOf(options)
}

/**
 * Passes `descriptor`, which it closes, to whoever opens `path`, and resolves when that has happened. Rejects with
 * DescriptorError when nobody comes in time, or the system forbids it.
 */
export async function passDescriptor(
  { driver }: Context,
  path: string,
  descriptor: number,
  announcement: Announcement,
  options: PassOptions,
): Promise<Connection> {
  try {
    const message = new Uint8Array(Buffer.from(JSON.stringify(announcement)))
    if (!driver.simulated) return await offerDescriptor(path, descriptor, message, options)
    return await offerWithin(driver, path, { descriptor, message, connection: null }, options)
  } finally {
    dropDescriptor(driver, descriptor)
  }
}

/** What was taken at a path, to be imported by `use`. */
export class Taken {
  constructor(
    private readonly driver: Driver,
    private readonly descriptor: number,
    readonly announcement: Announcement,
    private readonly connection: Connection,
  ) {
    openIds.add(announcement.id)
  }

  /** Imports: runs `work` with the descriptor, which is closed then. When that throws, it is as if nothing had been taken. */
  use<T>(work: (descriptor: number) => T): T {
    try {
      return work(this.descriptor)
    } catch (error) {
      this.close()
      throw error
    } finally {
      dropDescriptor(this.driver, this.descriptor)
    }
  }

  /** Everything opened is closed again: the owner learns of it. */
  close(): void {
    openIds.delete(this.announcement.id)
    this.connection.close()
  }
}

/**
 * Takes what is handed over at `path`. Rejects with DescriptorError when nothing is in time, and with PoolError when it is
 * of another kind, or something that this process has open already.
 */
export async function receiveDescriptor(
  { driver }: Context,
  path: string,
  kind: Announcement['kind'],
  options: PassOptions,
): Promise<Taken> {
  const { descriptor, message, connection } = driver.simulated
    ? await acceptWithin(driver, path, options)
    : await acceptDescriptor(path, options)
  try {
    const announcement = read(message)
    if (announcement.kind !== kind) {
      const call = announcement.kind === 'pool' ? 'openSharedPool' : 'openShared'
      throw new PoolError(`what was shared at ${path} is a ${announcement.kind}; have it shared again and use ${call}`)
    }
    if (openIds.has(announcement.id)) {
      throw new PoolError(`this process has opened the ${kind} shared at ${path} already; use that, or close it first`)
    }
    return new Taken(driver, descriptor, announcement, connection)
  } catch (error) {
    dropDescriptor(driver, descriptor)
    connection.close()
    throw error
  }
}

/** What the driver answers to an import of memory that is gone, with the reason. */
export function asGone(error: unknown, call: string): unknown {
  if (!(error instanceof CudaError) || error.code !== RESULT.CUDA_ERROR_INVALID_VALUE) return error
  return new PoolError(
    `${call}: the driver knows no such memory: its owner has freed or closed it; have it share again (${error.message})`,
    { cause: error },
  )
}

async function offerWithin(driver: Driver, path: string, offer: Offer, options: PassOptions): Promise<Connection> {
  const waiting = offers.get(driver) ?? new Map<string, Offer>()
  offers.set(driver, waiting)
  if (waiting.has(path)) throw new DescriptorError('bind', 'EADDRINUSE', `${path}: is shared already; choose another`)
  waiting.set(path, offer)
  try {
    return await lookUntil(
      deadlineOf(options),
      () => offer.connection,
      'accept',
      `nobody in this process opened ${path}`,
    )
  } finally {
    if (waiting.get(path) === offer) waiting.delete(path)
  }
}

async function acceptWithin(driver: Driver, path: string, options: PassOptions) {
  const connection = new ConnectionWithin()
  const take = () => {
    const offer = offers.get(driver)?.get(path)
    if (offer === undefined) return null
    offer.connection = connection
    offers.get(driver)?.delete(path)
    return offer
  }
  const missing = `nobody in this process shared anything at ${path}`
  const { descriptor, message } = await lookUntil(deadlineOf(options), take, 'connect', missing)
  return { descriptor, message, connection }
}

/** Both ends of one: the owner's and the opener's. */
class ConnectionWithin implements Connection {
  open = true

  close(): void {
    this.open = false
  }
}

function dropDescriptor(driver: Driver, descriptor: number): void {
  if (!driver.simulated) closeDescriptor(descriptor)
}

function read(message: Uint8Array): Announcement {
  try {
    const { kind, id, byteLength, memoryBytes } = JSON.parse(Buffer.from(message).toString()) ?? {}
    const isOurs = (kind === 'buffer' || kind === 'pool') && typeof id === 'string'
    if (isOurs && [byteLength, memoryBytes].every(Number.isSafeInteger)) return { kind, id, byteLength, memoryBytes }
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error
  }
  throw new DescriptorError('recvmsg', 'EPROTO', 'what came is not from share() of this version')
}
