// libcuda as one driver object calls it: its functions, the buffer for arguments and results, and errors for
// refusals. native-driver.ts adds the calls.

import { isMainThread } from 'node:worker_threads'
import type { CudaError } from '../../base/errors.js'
import { hostMemory } from '../../libraries/arguments.js'
import { RESULT } from '../constants.js'
import type { CallName } from '../driver.js'
import { StickyErrors } from '../sticky-errors.js'
import { FUNCTION_NAMES } from '../table.js'
import { bindFunctions, type Functions, type Library } from './library.js'
import { MarshallingBuffer } from './marshalling-buffer.js'

/** Stands for the context of calls that name a device or a context; such calls still work after a sticky error. */
export const NO_CONTEXT = 0

/** The library, and how a call is made and judged. */
export class BoundLibrary {
  /** the name under which the library was found */
  readonly origin: string
  /** calls by function; counted only after `countCalls()` */
  readonly calls = new Map<string, number>()

  /** the functions that methods call: `bound`, or `bound` behind counters */
  protected functions: Functions
  protected readonly buffer: MarshallingBuffer
  /** the addresses of the first and the second result */
  protected readonly first: number
  protected readonly second: number
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
    this.first = this.buffer.first
    this.second = this.buffer.second
    this.bound = bindFunctions(library, atOnce)
    this.functions = this.bound
  }

  hostAddress(host: ArrayBufferView): number {
    return this.library.addressOf(hostMemory(host, 'host'))
  }

  hostNodes(): readonly number[] {
    return this.library.pages?.nodes ?? []
  }

  placeHost(host: ArrayBufferView, node: number): boolean {
    const { pages } = this.library
    pages?.wantHuge(hostMemory(host, 'host'))
    return node < 0 || (pages?.bind(host, node) ?? false)
  }

  unplaceHost(host: ArrayBufferView): void {
    this.library.pages?.unbind(hostMemory(host, 'host'))
  }

  async fillHost(host: ArrayBufferView): Promise<void> {
    await this.library.pages?.fill(hostMemory(host, 'host'))
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
  protected check(call: CallName, code: number, context?: number): void {
    if (code !== RESULT.CUDA_SUCCESS) throw this.refusal(call, code, context)
  }

  /** The result of a call that writes a C int. */
  protected int(call: CallName, code: number, context?: number): number {
    this.check(call, code, context)
    return this.buffer.int()
  }

  /** The result of a call that writes a handle, an address or a size. */
  protected exact(call: CallName, code: number, context?: number): number {
    this.check(call, code, context)
    return this.buffer.exact()
  }

  /** The result of a query: false for CUDA_ERROR_NOT_READY. */
  protected answer(call: CallName, code: number): boolean {
    if (code === RESULT.CUDA_ERROR_NOT_READY) return false
    this.check(call, code)
    return true
  }

  /** The error for a result code; `log` is what the PTX compiler wrote. */
  protected refusal(call: CallName, code: number, context = this.contextOf(call), log = ''): CudaError {
    const name = this.describe('cuGetErrorName', code) || 'an unknown result'
    const text = this.describe('cuGetErrorString', code)
    return this.stickyErrors.refuse(context, call, code, name, log === '' ? text : `${text}: ${log}`)
  }

  /** The context that a call acts on. */
  private contextOf(call: CallName): number {
    return call.startsWith('cuDevice') ? NO_CONTEXT : this.context
  }

  private describe(by: 'cuGetErrorName' | 'cuGetErrorString', code: number): string {
    return this.bound[by](code, this.first) === RESULT.CUDA_SUCCESS ? this.library.textAt(this.buffer.exact()) : ''
  }
}
