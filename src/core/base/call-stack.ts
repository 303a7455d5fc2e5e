// Who is on the call stack, such as the program's call that led into this package. V8 captures a stack in about 2 µs,
// and formats it as text when `stack` is first read.

import { fileURLToPath } from 'node:url'
import { packageRoot } from './package-root.js'

const FRAME = '    at '
/** Frames of this package above the first one of the program, at most. */
const MOST_OWN_FRAMES = 16
const TEST_FILES = ['.test.', '.suite.', '.fixture.', '.worker.']
/** How frames name the package's code; with --enable-source-maps they name the sources. Empty in a program's bundle. */
const OURS = codePlaces(packageRoot())

/** Sets `stack` of `target`: at least `frames` frames of the program, and this package's up to the call of `below`. */
export function captureStack(target: object, below: unknown, frames: number): void {
  const { stackTraceLimit } = Error
  setLimit(MOST_OWN_FRAMES + frames)
  Error.captureStackTrace(target, below as () => void)
  setLimit(stackTraceLimit)
}

/** With `node --frozen-intrinsics` the limit is constant, and stays. */
function setLimit(frames: number): void {
  Reflect.set(Error, 'stackTraceLimit', frames)
}

/** With `node --frozen-intrinsics` the format is constant too: V8's own, as text. */
function setFormat(format: typeof Error.prepareStackTrace): void {
  Reflect.set(Error, 'prepareStackTrace', format)
}

/** Whether JavaScript is now in a call of `callee` that JavaScript made. A call that a timeout cut short is over. */
export function isUnderWay(callee: (...args: never) => unknown): boolean {
  const { stackTraceLimit, prepareStackTrace } = Error
  const callers: { stack?: unknown } = {}
  try {
    setLimit(1)
    setFormat((_: unknown, sites: readonly unknown[]) => (sites.length > 0 ? FRAME : ''))
    Error.captureStackTrace(callers, callee)
    return framesOf(String(callers.stack)).length > 0
  } finally {
    setLimit(stackTraceLimit)
    setFormat(prepareStackTrace)
  }
}

/** The lines of a stack that name calls. */
export function framesOf(stack: string): string[] {
  return stack.split('\n').filter(line => line.startsWith(FRAME))
}

/** Whether a frame is of this package's code. The package's own tests count as a program that calls it. */
export function isOurs(frame: string): boolean {
  return OURS.some(place => frame.includes(place)) && !TEST_FILES.some(part => frame.includes(part))
}

function codePlaces(root: string | null): string[] {
  if (root === null) return []
  const places = [`${root}dist/src/`, `${root}dist/lib/`, fileURLToPath(`${root}src/`)]
  return places.flatMap(place => [` ${place}`, `(${place}`])
}

/**
 * Makes the stack of an error begin with the program's line, not with this package's. For the constructors of errors
 * about a program's mistake or lack of memory. Errors of the driver, and defects, keep all frames.
 */
export function beginAtProgram(error: Error): void {
  const { stackTraceLimit } = Error
  if (typeof stackTraceLimit !== 'number') return // the program wants no stacks
  const whole = new WholeStack(error)
  captureStack(whole, error.constructor, stackTraceLimit)
  let stack: unknown
  Reflect.deleteProperty(error, 'stack') // Node 20 would format the stack before it defines another
  Object.defineProperty(error, 'stack', {
    configurable: true,
    get: () => (stack ??= programsPart(whole.stack, stackTraceLimit)),
    set: (value: unknown) => {
      stack = value
    },
  })
}

/** Has a stack below the first line of its error, which V8 makes of these names when `stack` is first read. */
class WholeStack {
  declare readonly stack: unknown
  constructor(private readonly error: Error) {}

  get name(): string {
    return this.error.name
  }

  get message(): string {
    return this.error.message
  }
}

/** A stack from the program's first frame on; all of it if the program has no frame, or a formatter of its own. */
function programsPart(stack: unknown, mostFrames: number): unknown {
  if (typeof stack !== 'string') return stack
  const lines = stack.split('\n')
  const top = lines.findLastIndex(line => !line.startsWith(FRAME)) + 1
  const first = lines.findIndex((line, number) => number >= top && isPrograms(line))
  const from = first === -1 ? top : first
  return [...lines.slice(0, top), ...lines.slice(from, from + mostFrames)].join('\n')
}

/** Frames of Node, and of functions such as `Array.map (<anonymous>)`, belong to no program. */
function isPrograms(frame: string): boolean {
  return !isOurs(frame) && /:\d+\)?$/.test(frame) && !/[ (]node:/.test(frame)
}
