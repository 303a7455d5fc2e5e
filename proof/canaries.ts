// The rules of stream order, each of which can be broken: a proof that would not notice proves nothing. A rule is broken by
// replacing a method for as long as a program runs; the product knows nothing of this.

import { GRAPH_CANARIES } from './graph-canaries.js'
import { MEMORY_CANARIES } from './memory-canaries.js'
import { ORDER_CANARIES } from './order-canaries.js'
import type { Kind } from './program.js'
import { SHARED_CANARIES } from './shared-canaries.js'

interface Canary {
  /** what the broken library does */
  readonly broken: string
  /** of which programs notice it; those of one thread unless it says otherwise */
  readonly kind?: Kind
  /** breaks the rule; returns what mends it */
  readonly break: () => () => void
}

export const CANARIES = {
  ...ORDER_CANARIES,
  ...MEMORY_CANARIES,
  ...GRAPH_CANARIES,
  ...SHARED_CANARIES,
} satisfies Readonly<Record<string, Canary>>

export type Rule = keyof typeof CANARIES

export const RULES = Object.keys(CANARIES) as Rule[]

/** The kind of the programs that notice when a rule is broken. */
export function kindOf(rule: Rule): Kind {
  const { kind = 'one-thread' }: Canary = CANARIES[rule]
  return kind
}

/** Breaks a rule until the returned function is called. */
export function breakRule(rule: Rule): () => void {
  return CANARIES[rule].break()
}
