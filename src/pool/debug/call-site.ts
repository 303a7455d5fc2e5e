// Where the program called the pool, remembered with each buffer. The engine captures a stack in some 2 µs and turns it
// into text only when that is asked for.

/** Frames looked through for one outside of this package. */
const MOST_FRAMES = 16
const TEST_FILES = ['.test.js', '.suite.js', '.fixture.js', '.worker.js']
const PACKAGE = new URL('../..', import.meta.url).href

export class CallSite {
  private readonly trace: { stack?: string } = {}

  private constructor(inText: boolean) {
    const { stackTraceLimit } = Error
    Error.stackTraceLimit = MOST_FRAMES
    Error.captureStackTrace(this.trace, CallSite.here)
    Error.stackTraceLimit = stackTraceLimit
    if (inText) void this.trace.stack
  }

  /** The call that is running now. A stack not yet in text keeps what its functions were called on from the garbage collector. */
  static here(inText: boolean): CallSite {
    return new CallSite(inText)
  }

  /** The innermost call that is not this package's: `function (file:line:column)`, or without a function. */
  toString(): string {
    const frames = (this.trace.stack ?? '').split('\n').filter(line => line.startsWith('    at '))
    const outside = frames.find(line => !isOurs(line)) ?? frames.at(-1) ?? '    at an unknown place'
    return outside.slice('    at '.length)
  }
}

/** The package's own tests call it like any program. */
function isOurs(frame: string): boolean {
  return frame.includes(PACKAGE) && !TEST_FILES.some(suffix => frame.includes(suffix))
}
