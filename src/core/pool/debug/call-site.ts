// The place in the program that called the pool, remembered with each buffer.

import { captureStack, framesOf, isOurs } from '../../base/call-stack.js'

export class CallSite {
  private readonly trace: { stack?: string } = {}

  /**
   * The running call. Until it is formatted, a stack keeps the receivers of its functions alive; `inText` formats it
   * at once.
   */
  constructor(
    inText: boolean,
    /** most calls in the text */
    private readonly frames = 1,
  ) {
    captureStack(this.trace, CallSite, this.frames)
    if (inText) void this.trace.stack
  }

  /**
   * The innermost calls outside of this package, each as `function (file:line:column)` or without a function; the
   * caller follows behind an arrow.
   */
  toString(): string {
    const frames = framesOf(this.trace.stack ?? '')
    const outside = frames.filter(line => !isOurs(line)).slice(0, this.frames)
    if (outside.length === 0) outside.push(frames.at(-1) ?? '    at an unknown place')
    return outside.map(line => line.slice('    at '.length)).join(' ← ')
  }
}
