// The call stack of each recorded allocation, as a number of a table. V8 takes most of the time for the text of a
// stack. So a stack is recognised by the positions of its calls, and its text is read the first time only.

import type { StackTable } from '../stack-table.js'

const FRAME = /^\s*at (?:(.*?) \()?(.*?):(\d+):\d+\)?$/
/** Frames of the recorder at the top of a stack: the method of the pool that makes the error. Each costs 0.6 µs. */
const OWN_FRAMES = 1

/** The stacks to record. */
export interface StackChoice {
  /** most frames of a stack; null for those that V8 keeps for errors, less the recorder's own */
  readonly mostFrames: number | null
  /** smaller requests have no stack */
  readonly minBytes: number
}

/** Of each call of a stack the position in its file, and the file. */
type Places = readonly (number | string | null)[]

interface KnownStack {
  readonly places: Places
  readonly number: number
}

/** V8's call sites, instead of text, as the property `stack` of an error. */
const asSites = (_: Error, sites: NodeJS.CallSite[]) => sites

/**
 * Gives the call stack of a recorder's caller as a number of `table`. The recorder makes the error itself, since each
 * frame takes time: `stacks.begin(bytes) ? stacks.numberOf(new Error()) : 0`.
 */
export class CallStacks {
  private readonly known = new Map<number, KnownStack[]>()
  /** those of the running call, in a list that is used again */
  private readonly places: (number | string | null)[] = []
  private stackTraceLimit = Error.stackTraceLimit
  private prepareStackTrace = Error.prepareStackTrace

  constructor(
    private readonly table: StackTable,
    private readonly choice: StackChoice,
  ) {}

  /** As the options `stacks` and `stackMinBytes` of `recorded()` say; null for no stacks. */
  static of(table: StackTable, stacks: boolean | number, minBytes: number): CallStacks | null {
    if (stacks === false) return null
    return new CallStacks(table, { mostFrames: stacks === true ? null : stacks, minBytes })
  }

  /** Whether a request has its stack recorded. If so, the next error must be passed to `numberOf`. */
  begin(bytes: number): boolean {
    const { mostFrames, minBytes } = this.choice
    if (bytes < minBytes) return false
    this.stackTraceLimit = Error.stackTraceLimit
    this.prepareStackTrace = Error.prepareStackTrace
    if (mostFrames !== null) Error.stackTraceLimit = mostFrames + OWN_FRAMES
    Error.prepareStackTrace = asSites
    return true
  }

  /** The number of the stack below the pool's method, which made `error`; 0 if V8 records none. */
  numberOf(error: Error): number {
    const sites = error.stack as unknown as PositionedSite[] | undefined
    Error.prepareStackTrace = this.prepareStackTrace
    if (this.choice.mostFrames !== null) Error.stackTraceLimit = this.stackTraceLimit
    if (sites === undefined || sites.length <= OWN_FRAMES) return 0
    const { places } = this
    places.length = 0
    let hash = 0
    for (let i = OWN_FRAMES; i < sites.length; i++) {
      const position = sites[i].getPosition()
      hash = (Math.imul(hash, 31) + position) | 0
      places.push(position, sites[i].getFileName() ?? null)
    }
    const alike = this.known.get(hash)
    if (alike !== undefined) for (const stack of alike) if (isSame(stack.places, places)) return stack.number
    const number = this.enter(textOf(sites.slice(OWN_FRAMES)))
    this.known.set(hash, [...(alike ?? []), { places: [...places], number }])
    return number
  }

  /** The number of a stack in the table, by its lines of text. */
  private enter(lines: readonly string[]): number {
    const entries = lines.map(line => {
      const [, name = '<anonymous>', filename = line.trim(), row = '0'] = FRAME.exec(line) ?? []
      return this.table.entry(filename, Number(row), name)
    })
    return this.table.number(entries)
  }
}

/** Node's types lack this method of V8's. */
interface PositionedSite extends NodeJS.CallSite {
  /** letters of the file before the call */
  getPosition(): number
}

function isSame(some: Places, others: Places): boolean {
  if (some.length !== others.length) return false
  for (let i = 0; i < some.length; i++) if (some[i] !== others[i]) return false
  return true
}

/**
 * The lines of the caller's stack. They are formatted by Node, or by a formatter that the program has set, so that
 * source maps count; if that gives no text, by V8.
 */
function textOf(sites: readonly NodeJS.CallSite[]): string[] {
  const { stackTraceLimit } = Error
  Error.stackTraceLimit = sites.length + OWN_FRAMES + 2 // and `numberOf` and this function
  const { stack } = new Error()
  Error.stackTraceLimit = stackTraceLimit
  return typeof stack === 'string' ? stack.split('\n').slice(-sites.length) : sites.map(site => `at ${site}`)
}
