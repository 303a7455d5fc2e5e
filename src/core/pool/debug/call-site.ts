// The place in the program that called the pool, remembered with each buffer. V8 captures a stack in about 2 µs, and
// formats it as text when `stack` is first read.

import { fileURLToPath } from 'node:url'
import { packageRoot } from '../../base/package-files.js'

/** Stack frames searched for the first one outside of this package. */
const MOST_FRAMES = 16
const TEST_FILES = ['.test.', '.suite.', '.fixture.', '.worker.']
/** How frames name the package's code; with --enable-source-maps they name the sources. Empty in a program's bundle. */
const OURS = codePlaces(packageRoot())

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
    const { stackTraceLimit } = Error
    Error.stackTraceLimit = MOST_FRAMES + this.frames
    Error.captureStackTrace(this.trace, CallSite)
    Error.stackTraceLimit = stackTraceLimit
    if (inText) void this.trace.stack
  }

  /**
   * The innermost calls outside of this package, each as `function (file:line:column)` or without a function; the
   * caller follows behind an arrow.
   */
  toString(): string {
    const frames = (this.trace.stack ?? '').split('\n').filter(line => line.startsWith('    at '))
    const outside = frames.filter(line => !isOurs(line)).slice(0, this.frames)
    if (outside.length === 0) outside.push(frames.at(-1) ?? '    at an unknown place')
    return outside.map(line => line.slice('    at '.length)).join(' ← ')
  }
}

/** The package's own tests count as a program that calls it. */
function isOurs(frame: string): boolean {
  return OURS.some(place => frame.includes(place)) && !TEST_FILES.some(part => frame.includes(part))
}

function codePlaces(root: string | null): string[] {
  return root === null ? [] : [`${root}dist/src/`, `${root}dist/lib/`, `(${fileURLToPath(root)}src/`]
}
