// The place in the program that called the pool, remembered with each buffer. V8 captures a stack in about 2 µs, and
// formats it as text when `stack` is first read.

import { fileURLToPath } from 'node:url'
import { packageRoot } from '../../base/package-files.js'

/** Stack frames searched for the first one outside of this package. */
const MOST_FRAMES = 16
const TEST_FILES = ['.test.', '.suite.', '.fixture.', '.worker.']
/** How frames name the package's code; with --enable-source-maps they name the sources. Empty in a bundle. */
const OURS = codePlaces(packageRoot())

export class CallSite {
  private readonly trace: { stack?: string } = {}

  private constructor(inText: boolean) {
    const { stackTraceLimit } = Error
    Error.stackTraceLimit = MOST_FRAMES
    Error.captureStackTrace(this.trace, CallSite.here)
    Error.stackTraceLimit = stackTraceLimit
    if (inText) void this.trace.stack
  }

  /**
   * The running call. Until it is formatted, a stack keeps the receivers of its functions alive; `inText` formats it
   * at once.
   */
  static here(inText: boolean): CallSite {
    return new CallSite(inText)
  }

  /** The innermost call outside of this package: `function (file:line:column)`, or without a function. */
  toString(): string {
    const frames = (this.trace.stack ?? '').split('\n').filter(line => line.startsWith('    at '))
    const outside = frames.find(line => !isOurs(line)) ?? frames.at(-1) ?? '    at an unknown place'
    return outside.slice('    at '.length)
  }
}

/** The package's own tests count as a program that calls it. */
function isOurs(frame: string): boolean {
  return OURS.some(place => frame.includes(place)) && !TEST_FILES.some(part => frame.includes(part))
}

function codePlaces(root: string | null): string[] {
  return root === null ? [] : [`${root}dist/src/`, `(${fileURLToPath(root)}src/`]
}
