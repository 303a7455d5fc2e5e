// Passes memory from the process that owns it to a process that opens it. Both name a path of a socket. The owner
// sends a file descriptor of the driver's, with a message that describes the memory. The connection stays open, so
// that the owner notices when the opener closes the memory or ends.

import { CudaError, DescriptorError, PoolError } from '../../base/errors.js'
import { checkOptionNames } from '../../base/option-names.js'
import { RESULT } from '../../driver/constants.js'
import {
  acceptDescriptor,
  type Connection,
  checkPath,
  closeDescriptor,
  deadlineOf,
  offerDescriptor,
  type PassOptions,
} from '../../libraries/descriptors.js'

export type { Connection, PassOptions }

/** The message that describes a descriptor. */
export interface Announcement {
  readonly kind: 'buffer' | 'pool'
  /** identifies the memory or pool, and is the same each time it is shared */
  readonly id: string
  /** requested bytes, and bytes of memory behind them; 0 for a pool */
  readonly byteLength: number
  readonly memoryBytes: number
}

/** ids of everything that this process has open */
const openIds = new Set<string>()

/** Throws for a bad path or bad options, before anything else happens. */
export function checkShare(
  call: string,
  path: string,
  options: PassOptions,
  names: readonly string[] = ['timeoutMs'],
): void {
  checkPath(path)
  checkOptionNames(call, options, names)
  deadlineOf(options)
}

/**
 * Passes `descriptor` to the process that opens `path`, and then closes it. Rejects with DescriptorError when no
 * process opens the path in time, or the system forbids it.
 */
export async function passDescriptor(
  path: string,
  descriptor: number,
  announcement: Announcement,
  options: PassOptions,
): Promise<Connection> {
  try {
    const message = new Uint8Array(Buffer.from(JSON.stringify(announcement)))
    return await offerDescriptor(path, descriptor, message, options)
  } finally {
    closeDescriptor(descriptor)
  }
}

/** A descriptor received at a path, to be imported by `use`. */
export class ReceivedDescriptor {
  constructor(
    private readonly descriptor: number,
    readonly announcement: Announcement,
    private readonly connection: Connection,
  ) {
    openIds.add(announcement.id)
  }

  /**
   * Calls `work` with the descriptor, and then closes the descriptor. If `work` throws, the connection is closed,
   * too.
   */
  use<T>(work: (descriptor: number) => T): T {
    try {
      return work(this.descriptor)
    } catch (error) {
      this.close()
      throw error
    } finally {
      closeDescriptor(this.descriptor)
    }
  }

  /** Closes the connection, which tells the owner that the memory was closed here. */
  close(): void {
    openIds.delete(this.announcement.id)
    this.connection.close()
  }
}

/**
 * Receives the descriptor that is offered at `path`. Rejects with DescriptorError after the time limit.
 * Rejects with PoolError when the descriptor is of another kind, or of memory that this process has open.
 */
export async function receiveDescriptor(
  path: string,
  kind: Announcement['kind'],
  options: PassOptions,
): Promise<ReceivedDescriptor> {
  const { descriptor, message, connection } = await acceptDescriptor(path, options)
  try {
    const announcement = read(message)
    if (announcement.kind !== kind) {
      const call = announcement.kind === 'pool' ? 'importPool' : 'importBuffer'
      throw new PoolError(
        `what was exported to ${path} is a ${announcement.kind}; have it exported again and use ${call}`,
      )
    }
    if (openIds.has(announcement.id)) {
      throw new PoolError(
        `this process has opened the ${kind} exported to ${path} already; use that, or close it first`,
      )
    }
    return new ReceivedDescriptor(descriptor, announcement, connection)
  } catch (error) {
    closeDescriptor(descriptor)
    connection.close()
    throw error
  }
}

/**
 * Replaces the driver's error for memory that is gone by a PoolError that names the reason; returns other errors as
 * they are.
 */
export function asGone(error: unknown, call: string): unknown {
  if (!(error instanceof CudaError) || error.result !== RESULT.CUDA_ERROR_INVALID_VALUE) return error
  return new PoolError(
    `${call}: the driver knows no such memory: its owner has freed or closed it; have it share again (${error.message})`,
    'ERR_POOL',
    { cause: error },
  )
}

function read(message: Uint8Array): Announcement {
  try {
    const { kind, id, byteLength, memoryBytes } = JSON.parse(Buffer.from(message).toString()) ?? {}
    const isOurs = (kind === 'buffer' || kind === 'pool') && typeof id === 'string'
    if (isOurs && [byteLength, memoryBytes].every(Number.isSafeInteger)) return { kind, id, byteLength, memoryBytes }
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error
  }
  throw new DescriptorError('recvmsg', 'EPROTO', 'what came is not from exportTo() of this version')
}
