// The call stacks that hold memory at an event, with their names, for a comparison with another recording.

import { CallSites, callName, type NamedFrame, type Site } from '../frames/call-sites.js'
import { isSite } from '../frames/frame-kind.js'
import { BEFORE, type Trace } from '../trace.js'
import { liveAfter } from './curves.js'

/** The blocks of one call stack. */
export interface StackAtPeak {
  readonly trace: Trace
  /** number of the stack */
  readonly stack: number
  /** whether these are blocks from before the recording, without a call stack */
  readonly before: boolean
  bytes: number
  blocks: number
  readonly site: Site
  /** the frame that names the stack; undefined without a stack */
  readonly named: NamedFrame | undefined
  /** the line outside of PyTorch that called the site */
  readonly caller: string | null
  /** the calls without machinery, the innermost first */
  readonly calls: readonly NamedFrame[]
}

/** The stacks that hold memory after an event. */
export function heldAt(trace: Trace, event: number): StackAtPeak[] {
  const { blocks } = trace
  const sites = CallSites.of(trace.stacks)
  const found = new Map<number, StackAtPeak>()
  for (const number of liveAfter(trace, event)) {
    const stack = blocks.stack[number]
    const before = stack === 0 && number < blocks.initial
    const key = before ? BEFORE : stack
    let held = found.get(key)
    if (held === undefined) {
      held = { trace, stack, before, bytes: 0, blocks: 0, ...placeOf(sites, stack) }
      found.set(key, held)
    }
    held.bytes += blocks.bytes[number]
    held.blocks++
  }
  return [...found.values()]
}

function placeOf(sites: CallSites, stack: number): Pick<StackAtPeak, 'site' | 'named' | 'caller' | 'calls'> {
  const calls = sites.callsOf(stack)
  const named = sites.frameOf(stack)
  const outside = named === undefined ? [] : calls.slice(calls.indexOf(named) + 1)
  const caller = named !== undefined && isSite(named.kind) ? outside.find(({ kind }) => isSite(kind)) : undefined
  return { site: sites.siteOf(stack), named, caller: caller === undefined ? null : callName(caller), calls }
}
