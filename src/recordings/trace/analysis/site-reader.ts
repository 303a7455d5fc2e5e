// The call site of each block, found once for each call stack.

import { siteOf } from '../failures/holders.js'
import { stackFrames, type Trace } from '../trace.js'

/** The call site of a stack as `file:line function`; null without a stack. */
export function siteReader({ stacks }: Pick<Trace, 'stacks'>): (stack: number) => string | null {
  const known = new Map<number, string | null>()
  return stack => {
    let site = known.get(stack)
    if (site === undefined) {
      site = siteOf(stackFrames(stacks, stack)).site
      known.set(stack, site)
    }
    return site
  }
}
