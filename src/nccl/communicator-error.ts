import { describe } from '../core/base/bytes.js'
import { beginAtProgram } from '../core/base/call-stack.js'
import { NCCL_RESULT } from './constants.js'

/** A program may make such an error from anything. */
const textOf = (value: unknown) => (typeof value === 'string' ? value : describe(value))

/** NCCL has refused a call, a rank is gone, or the ranks did not come in time. No memory is lost by it. */
export class CommunicatorError extends Error {
  override name = 'CommunicatorError'
  /** the same for all errors of the class */
  readonly code = 'ERR_COMMUNICATOR'
  constructor(
    /** the call, such as `allReduce` or `Communicator.join` */
    readonly call: string,
    /** the ncclResult_t, such as 6; 7 after a timeout */
    readonly result: number,
    /** the name of the result, such as `ncclRemoteError` */
    readonly resultName: string,
    /** the last warning of NCCL in this process, or '' */
    readonly last: string,
    remedy: string,
  ) {
    const warning = last === '' ? '' : `: ${textOf(last)}`
    const isLate = result === NCCL_RESULT.ncclInProgress
    const how = isLate ? 'has timed out' : `failed: ${textOf(resultName)} (${describe(result)})${warning}`
    super(`${textOf(call)} ${how}; ${textOf(remedy)}`)
    beginAtProgram(this)
  }
}
