// Every error a user can meet, by kind: running out, a caller's mistake, a driver's refusal. A caller's mistake with a
// plain value is the language's own TypeError or RangeError; one that depends on the state of a pool, buffer, stream or
// device is a PoolError. Broken promises of our own are assertions (assert.ts) and none of these.

/** A call that the state of its object does not allow: a second free, a closed pool, a buffer of another pool. */
export class PoolError extends Error {
  override name = 'PoolError'
}

/** What a pool in debug mode has found. */
export type Fault = 'outOfBounds' | 'useAfterFree' | 'useBeforeAllocation' | 'freeBeforeUse' | 'writeAfterFree'

/** Where the program made the calls that a fault is about: `function (file:line:column)`, or that it was not remembered. */
export interface FaultSites {
  /** where the buffer was allocated */
  readonly allocatedAt: string
  /** where it was used; only of faults about a use */
  readonly usedAt?: string
  /** where it was freed; only of faults about a free */
  readonly freedAt?: string
}

/** A mistake of the program in its use of memory, found by a pool in debug mode. */
export class DebugError extends PoolError {
  override name = 'DebugError'
  constructor(
    /** the kind of mistake */
    readonly fault: Fault,
    message: string,
    /** the places of the calls that the fault is about */
    readonly sites: FaultSites,
  ) {
    super(message)
  }
}

/** A GPU could not be opened because there is none, or no driver for it. The message says what was tried and the remedy. */
export class NoDeviceError extends Error {
  override name = 'NoDeviceError'
}

/** An optional library is missing, or lacks what is asked of it. The message says what was tried and the remedy. */
export class NoLibraryError extends Error {
  override name = 'NoLibraryError'
}

/** Source code that does not compile; `log` is what the compiler said, with the numbers of the lines. */
export class CompileError extends Error {
  override name = 'CompileError'
  constructor(
    message: string,
    /** the compiler's text, with line numbers */
    readonly log: string,
  ) {
    super(message)
  }
}

/** A file that is not what it should be: truncated, foreign or hostile. The message says where and why. */
export class FormatError extends Error {
  override name = 'FormatError'
}

/** A descriptor could not be passed between processes. `call` and `code` are the system's, say `connect` and `EACCES`. */
export class DescriptorError extends Error {
  override name = 'DescriptorError'
  constructor(
    /** the function of the system that failed */
    readonly call: string,
    /** the system's error code, such as `EACCES` */
    readonly code: string,
    detail: string,
  ) {
    super(`${call} failed: ${code}: ${detail}`)
  }
}

/** A driver function refused. `code` and `codeName` are the driver's own, for example 2 and `CUDA_ERROR_OUT_OF_MEMORY`. */
export class CudaError extends Error {
  override name = 'CudaError'
  constructor(
    /** the driver's function that refused */
    readonly call: string,
    /** its result, a CUresult */
    readonly code: number,
    /** the name of the result, such as `CUDA_ERROR_INVALID_VALUE` */
    readonly codeName: string,
    detail = '',
  ) {
    super(`${call} failed: ${codeName} (${code})${detail === '' ? '' : `: ${detail}`}`)
  }
}

/** A fault has killed the device's context; `first` is that fault. Only a new process can use the device again. */
export class DeviceLostError extends Error {
  override name = 'DeviceLostError'
  constructor(
    /** the fault that killed the context */
    readonly first: CudaError,
  ) {
    super(`the device is lost since ${first.message}; start a new process to use it again`)
  }
}

/** The numbers behind an out-of-memory; all in bytes, `Infinity` where there is no limit. */
export interface OutOfMemoryFigures {
  /** bytes of the request that failed */
  readonly requestedBytes: number
  /** handed out and not yet freed */
  readonly liveBytes: number
  /** freed, but still waiting for work on a stream to complete */
  readonly pendingBytes: number
  /** obtained from the device */
  readonly reservedBytes: number
  /** freed and kept as whole blocks for their stream, where the pool does that */
  readonly cachedBytes?: number
  /** the largest block that the pool could have handed out */
  readonly largestFreeBytes: number
  /** what the pool may reserve at most */
  readonly limitBytes: number
  /** free on the device, as the driver says */
  readonly deviceFreeBytes: number
  /** on the device, of other programs and of others in this one, where the pool knows */
  readonly heldElsewhereBytes?: number
}

/** What a pool keeps that one stream used last. */
export interface StreamMemory {
  /** the driver's handle; null for a stream that is closed */
  readonly stream: number | null
  /** freed, but still waiting for work on it to complete */
  readonly pendingBytes: number
  /** freed, and kept as whole blocks for it */
  readonly cachedBytes: number
}

/**
 * What would have helped: a higher `maxPoolBytes`, or less held; memory on the device, by whomever it is held; a lower
 * `leaveFreeBytes`; the work that freed memory waits for; or idle memory in one piece.
 */
export type Remedy = 'raiseLimit' | 'freeDeviceMemory' | 'lowerLeaveFree' | 'awaitPending' | 'joinPieces'

/** No memory for a request, after everything that would have helped was tried. The pool works on afterwards. */
export class OutOfMemoryError extends Error {
  override name = 'OutOfMemoryError'
  constructor(
    message: string,
    /** the pool's numbers at that moment */
    readonly figures: OutOfMemoryFigures,
    /** of a caching pool: the streams that it keeps memory for, the most pending first */
    readonly streams: readonly StreamMemory[] = [],
    /** of a caching pool: what the message advises; null of others */
    readonly remedy: Remedy | null = null,
  ) {
    super(message)
  }
}
