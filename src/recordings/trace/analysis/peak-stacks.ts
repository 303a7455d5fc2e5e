// The call stacks that hold memory at an event, with their names, for a comparison with another recording.

import { type StackSum, stackSums } from '../failures/stack-sums.js'
import { CallSites, callName, type NamedFrame, type Site } from '../frames/call-sites.js'
import { isSite } from '../frames/frame-kind.js'
import { BEFORE, type Trace } from '../trace.js'
import { liveAfter } from './curves.js'

/** The blocks of one call stack. */
export interface StackAtPeak extends Readonly<StackSum> {
  readonly trace: Trace
  /** number of the stack */
  readonly stack: number
  /** whether these are blocks from before the recording, without a call stack */
  readonly before: boolean
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
  const sites = CallSites.of(trace.stacks)
  return Array.from(stackSums(trace, liveAfter(trace, event)), ([key, sum]) => {
    const stack = Math.max(0, key)
    return { trace, stack, before: key === BEFORE, ...sum, ...placeOf(sites, stack) }
  })
}

function placeOf(sites: CallSites, stack: number): Pick<StackAtPeak, 'site' | 'named' | 'caller' | 'calls'> {
  const calls = sites.callsOf(stack)
  const named = sites.frameOf(stack)
  const outside = named === undefined ? [] : calls.slice(calls.indexOf(named) + 1)
  const caller = named !== undefined && isSite(named.kind) ? outside.find(({ kind }) => isSite(kind)) : undefined
  return { site: sites.siteOf(stack), named, caller: caller === undefined ? null : callName(caller), calls }
}
