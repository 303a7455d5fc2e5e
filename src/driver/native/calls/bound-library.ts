// libcuda as one driver object calls it: its functions, the buffer for arguments and results, and errors for
// refusals. Each file beside this one adds one chapter of the driver contract: its class extends the class of the
// chapter before. The order is device-, memory-, stream-, pool-, virtual-memory-, kernel-calls; NativeDriver extends
// the last.
//
// Each method checks its numbers, because koffi would make 1 of 1.5 and 0 of NaN without an error.

import { isMainThread } from 'node:worker_threads'
import type { CudaError } from '../../../base/errors.js'
import { hostMemory } from '../../../libraries/arguments.js'
import { RESULT } from '../../constants.js'
import type { Driver } from '../../driver.js'
import { StickyErrors } from '../../sticky-errors.js'
import { bindFunctions, type Functions, type Library } from '../library.js'
import { MarshallingBuffer } from '../marshalling-buffer.js'
import { FUNCTION_NAMES } from '../table.js'

/** Stands for the context of calls that name a device or a context; such calls still work after a sticky error. */
export const NO_CONTEXT = 0

/** The functions of the contract; errors name them. */
export type CallName = Extract<keyof Driver, `cu${string}`>

/** The library, and how a call is made and judged. */
export class BoundLibrary {
  /** the name under which the library was found */
  readonly origin: string
  /** calls by function; counted only after `countCalls()` */
  readonly calls = new Map<string, number>()

  /** the functions that methods call: `bound`, or `bound` behind counters */
  protected functions: Functions
  protected readonly buffer: MarshallingBuffer
  /** the current context of this thread */
  protected context = NO_CONTEXT
  private readonly bound: Functions
  private readonly stickyErrors = new StickyErrors()

  constructor(
    protected readonly library: Library,
    atOnce = !isMainThread,
  ) {
    this.origin = library.path
    this.buffer = new MarshallingBuffer(library.addressOf)
    this.bound = bindFunctions(library, atOnce)
    this.functions = this.bound
  }

  hostAddress(host: ArrayBufferView): number {
    return this.library.addressOf(hostMemory(host, 'host'))
  }

  /** Starts to count `calls`, which costs about 50 ns a call. */
  countCalls(): void {
    const counted = {} as Functions
    for (const name of FUNCTION_NAMES) {
      counted[name] = (...args) => {
        this.calls.set(name, (this.calls.get(name) ?? 0) + 1)
        return this.bound[name](...args)
      }
    }
    this.functions = counted
  }

  /** The functions for calls that act on the current context. Throws DeviceLostError when the context is lost. */
  protected get live(): Functions {
    this.stickyErrors.guard(this.context)
    return this.functions
  }

  /** Throws CudaError unless the call succeeded. */
  protected check(call: CallName, code: number, context = this.context): void {
    if (code !== RESULT.CUDA_SUCCESS) throw this.refusal(call, code, context)
  }

  /** The result of a query: false for CUDA_ERROR_NOT_READY. */
  protected answer(call: CallName, code: number): boolean {
    if (code === RESULT.CUDA_ERROR_NOT_READY) return false
    this.check(call, code)
    return true
  }

  /** The error for a result code; `log` is what the PTX compiler wrote. */
  protected refusal(call: CallName, code: number, context: number, log = ''): CudaError {
    const name = this.describe('cuGetErrorName', code) || 'an unknown result'
    const text = this.describe('cuGetErrorString', code)
    return this.stickyErrors.refuse(context, call, code, name, log === '' ? text : `${text}: ${log}`)
  }

  private describe(by: 'cuGetErrorName' | 'cuGetErrorString', code: number): string {
    const { first } = this.buffer
    return this.bound[by](code, first) === RESULT.CUDA_SUCCESS ? this.library.textAt(this.buffer.exact()) : ''
  }
}
