// All error classes of the public API: running out of memory, mistakes of the caller, refusals of the driver or the
// system. A wrong argument throws JavaScript's TypeError or RangeError. A call that the state of a pool, buffer,
// stream or device does not allow throws PoolError. Bugs of the library itself throw AssertionError (assert.ts).
// Stacks begin with the program's line, except those of the driver's and the system's refusals.

import { WrongTypeError } from './argument-errors.js'
import { describe } from './bytes.js'
import { beginAtProgram } from './call-stack.js'

/** Throws TypeError unless a message is text; V8's own error would not name it. */
function checked(message: unknown): string {
  if (message === undefined || typeof message === 'string') return message ?? ''
  throw new WrongTypeError(`the message of an error must be a text, not ${describe(message)}`)
}

/** The codes of PoolError, by the state that does not allow the call. `docs/errors.md` says when each is thrown. */
export type PoolErrorCode =
  | 'ERR_POOL'
  | 'ERR_POOL_CLOSED'
  | 'ERR_POOL_ASLEEP'
  | 'ERR_POOL_IN_USE'
  | 'ERR_BUFFER_FREED'
  | 'ERR_STREAM_CLOSED'
  | 'ERR_STREAM_CAPTURED'
  | 'ERR_STREAM_ORDER'
  | 'ERR_OTHER_DEVICE'
  | 'ERR_TOO_MANY_WAIT'
  | 'ERR_DEVICE_CLOSED'
  | 'ERR_NOT_SUPPORTED'
  | 'ERR_DEBUG'

/** The codes of all error classes, which stay the same where messages change. `docs/errors.md` has a table. */
export type ErrorCode =
  | PoolErrorCode
  | 'ERR_OUT_OF_MEMORY'
  | 'ERR_CUDA'
  | 'ERR_DEVICE_LOST'
  | 'ERR_DESCRIPTOR'
  | 'ERR_NO_DEVICE'
  | 'ERR_NO_LIBRARY'
  | 'ERR_MISSING_FILE'
  | 'ERR_COMPILE'
  | 'ERR_FORMAT'
  | 'ERR_SLOW_REPLAY'
  | 'ERR_COMMUNICATOR'
  | 'ERR_INVALID_ARG_TYPE'
  | 'ERR_OUT_OF_RANGE'

/** A call that the state of its object does not allow: a second free, a closed pool, a buffer of another pool. */
export class PoolError extends Error {
  override name = 'PoolError'
  constructor(
    message?: string,
    /** the state that does not allow the call */
    readonly code: PoolErrorCode = 'ERR_POOL',
    options?: ErrorOptions,
  ) {
    super(checked(message), options)
    beginAtProgram(this)
  }
}

/** The kinds of mistakes that a pool in debug mode detects. */
export type Fault = 'outOfBounds' | 'useAfterFree' | 'useBeforeAllocation' | 'freeBeforeUse' | 'writeAfterFree'

/** The calls of the program that led to a fault: `function (file:line:column)`, or a note if not known. */
export interface FaultSites {
  /** where the buffer was allocated */
  readonly allocatedAt: string
  /** the use by a kernel, copy or fill; missing if the fault has no such call */
  readonly usedAt?: string
  /** the free; missing if the buffer was not freed */
  readonly freedAt?: string
}

/** A wrong use of memory that a pool in debug mode has detected. */
export class DebugError extends PoolError {
  override name = 'DebugError'
  constructor(
    /** the kind of mistake */
    readonly fault: Fault,
    message: string,
    /** the calls that led to it */
    readonly sites: FaultSites,
  ) {
    super(checked(message), 'ERR_DEBUG')
  }
}

/** No GPU could be opened: the machine has no GPU, or no CUDA driver. The message has the attempts and the remedy. */
export class NoDeviceError extends Error {
  override name = 'NoDeviceError'
  /** the same for all errors of the class */
  readonly code = 'ERR_NO_DEVICE'
  constructor(message?: string, options?: ErrorOptions) {
    super(checked(message), options)
    beginAtProgram(this)
  }
}

/** An optional library is missing, or lacks a function. The message has the attempts and the remedy. */
export class NoLibraryError extends Error {
  override name = 'NoLibraryError'
  /** the same for all errors of the class */
  readonly code = 'ERR_NO_LIBRARY'
  constructor(message?: string, options?: ErrorOptions) {
    super(checked(message), options)
    beginAtProgram(this)
  }
}

/**
 * A file of this package is missing at run time: a bundler has taken the package's code into a bundle. The message
 * names the file and the remedy.
 */
export class MissingFileError extends Error {
  override name = 'MissingFileError'
  /** the same for all errors of the class */
  readonly code = 'ERR_MISSING_FILE'
  constructor(message?: string, options?: ErrorOptions) {
    super(checked(message), options)
    beginAtProgram(this)
  }
}

/** Source code does not compile. */
export class CompileError extends Error {
  override name = 'CompileError'
  /** the same for all errors of the class */
  readonly code = 'ERR_COMPILE'
  constructor(
    message: string,
    /** the output of the compiler, with line numbers */
    readonly log: string,
  ) {
    super(checked(message))
    beginAtProgram(this)
  }
}

/**
 * A file has a wrong format: truncated, foreign or hostile. The message has the place and the reason, on one line
 * without the control letters that a file may have.
 */
export class FormatError extends Error {
  override name = 'FormatError'
  /** the same for all errors of the class */
  readonly code = 'ERR_FORMAT'
  constructor(message?: string, options?: ErrorOptions) {
    super(
      checked(message)
        .replace(/\p{Cc}+/gu, ' ')
        .trimEnd(),
      options,
    )
    beginAtProgram(this)
  }
}

/**
 * A replay of a recording takes out of all proportion to its length, and was given up. The message has the file, the
 * policy and the remedy. Replays on a GPU are never given up.
 */
export class SlowReplayError extends Error {
  override name = 'SlowReplayError'
  /** the same for all errors of the class */
  readonly code = 'ERR_SLOW_REPLAY'
  constructor(message?: string, options?: ErrorOptions) {
    super(checked(message), options)
    beginAtProgram(this)
  }
}

/** A file descriptor could not be passed between processes. */
export class DescriptorError extends Error {
  override name = 'DescriptorError'
  /** the same for all errors of the class */
  readonly code = 'ERR_DESCRIPTOR'
  constructor(
    /** the system call, such as `connect` */
    readonly call: string,
    /** the name of the system's result, such as `EACCES` */
    readonly resultName: string,
    detail: string,
  ) {
    super(`${checked(call)} failed: ${checked(resultName)}: ${checked(detail)}`)
  }
}

/** The codes of KeepError. `docs/errors.md` says when each is thrown. */
export type KeepErrorCode =
  | 'absent'
  | 'unfinished'
  | 'quota'
  | 'size'
  | 'device'
  | 'lost'
  | 'user'
  | 'protocol'
  | 'gone'
  | 'timeout'

/** The keeper of device memory has refused a request, or cannot be reached. The message has the remedy. */
export class KeepError extends Error {
  override name = 'KeepError'
  constructor(
    message: string,
    /** why it was refused */
    readonly code: KeepErrorCode,
    options?: ErrorOptions,
  ) {
    super(checked(message), options)
    beginAtProgram(this)
  }
}

/** A function of the CUDA driver has failed. */
export class CudaError extends Error {
  override name = 'CudaError'
  /** the same for all errors of the class */
  readonly code = 'ERR_CUDA'
  constructor(
    /** the driver function, such as `cuMemAlloc` */
    readonly call: string,
    /** the CUresult, such as 2 */
    readonly result: number,
    /** the name of the result, such as `CUDA_ERROR_OUT_OF_MEMORY` */
    readonly resultName: string,
    detail = '',
    options?: ErrorOptions,
  ) {
    super(
      `${checked(call)} failed: ${checked(resultName)} (${describe(result)})${detail === '' ? '' : `: ${checked(detail)}`}`,
      options,
    )
  }
}

/** A sticky error has ended the context of the device. Only a new process can use the device again. */
export class DeviceLostError extends Error {
  override name = 'DeviceLostError'
  /** the same for all errors of the class */
  readonly code = 'ERR_DEVICE_LOST'
  constructor(
    /** the error that ended the context */
    readonly first: CudaError,
  ) {
    super(`the device is lost since ${checked(first?.message)}; start a new process to use it again`)
  }
}

/** The figures of an OutOfMemoryError. All are in bytes; `Infinity` means no limit. */
export interface OutOfMemoryFigures {
  /** size of the request */
  readonly requestedBytes: number
  /** allocated by the program and not freed */
  readonly liveBytes: number
  /** freed, but still waiting for work on a stream to complete */
  readonly pendingBytes: number
  /** obtained from the device */
  readonly reservedBytes: number
  /** freed, and cached as whole blocks for their stream; missing for pools without such caches */
  readonly cachedBytes?: number
  /** the largest block that the pool could allocate */
  readonly largestFreeBytes: number
  /** the limit of the pool's reserved bytes */
  readonly maxPoolBytes: number
  /** free on the device, by the driver's count */
  readonly deviceFreeBytes: number
  /** used on the device by other programs, and outside of this pool; missing if the pool does not know */
  readonly heldElsewhereBytes?: number
}

/** A process that uses a device. */
export interface DeviceProcess {
  /** its process id */
  readonly pid: number
  /** the name of its program, as the system has it; null if that cannot be read */
  readonly name: string | null
  /** bytes of the device's memory that it holds; null if NVML does not tell them */
  readonly bytes: number | null
}

/** Memory in a pool that one stream used last. */
export interface StreamMemory {
  /** the driver's handle; null for a closed stream */
  readonly stream: number | null
  /** freed, but still waiting for work on the stream to complete */
  readonly pendingBytes: number
  /** freed, and cached as whole blocks for the stream */
  readonly cachedBytes: number
}

/**
 * The remedy for an OutOfMemoryError:
 * - 'askForLess': the request can never fit into the pool or device as they are; ask for less.
 * - 'raiseLimit': raise `maxPoolBytes`, or hold less memory.
 * - 'freeDeviceMemory': free memory on the device, here or in other programs.
 * - 'lowerLeaveFree': lower `leaveFreeBytes`.
 * - 'awaitPending': wait for the work that freed memory waits for.
 * - 'joinPieces': idle memory suffices, but not in one piece.
 */
export type Remedy = 'askForLess' | 'raiseLimit' | 'freeDeviceMemory' | 'lowerLeaveFree' | 'awaitPending' | 'joinPieces'

/** The pool has no memory for a request, after all other attempts. Later calls of the pool work. */
export class OutOfMemoryError extends Error {
  override name = 'OutOfMemoryError'
  /** the same for all errors of the class */
  readonly code = 'ERR_OUT_OF_MEMORY'
  constructor(
    message: string,
    /** the state of the pool at the failure, in bytes */
    readonly figures: OutOfMemoryFigures,
    /** of a caching pool: its streams with pending or cached memory, most pending first; empty for other pools */
    readonly streams: readonly StreamMemory[] = [],
    /** the remedy in the message; null for a request that other kinds than caching pools could serve later */
    readonly remedy: Remedy | null = null,
    /**
     * the other processes that use the device, most bytes first, if the device is full; empty if the device is not, or
     * where NVML does not tell them, as in some containers
     */
    readonly processes: readonly DeviceProcess[] = [],
  ) {
    super(checked(message))
    beginAtProgram(this)
  }
}
