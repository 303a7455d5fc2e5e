// The rules of stream order, each of which can be broken: a proof that would not notice proves nothing. A rule is broken by
// replacing a method for as long as a program runs; the product knows nothing of this.

import { GRAPH_MUTANTS } from './graph-mutants.js'
import { MEMORY_MUTANTS } from './memory-mutants.js'
import { ORDER_MUTANTS } from './order-mutants.js'
import type { Kind } from './program.js'
import { SHARED_MUTANTS } from './shared-mutants.js'

interface Mutant {
  /** what the broken library does */
  readonly broken: string
  /** of which programs notice it; those of one thread unless it says otherwise */
  readonly kind?: Kind
  /** breaks the rule; returns what mends it */
  readonly break: () => () => void
}

export const MUTANTS = {
  ...ORDER_MUTANTS,
  ...MEMORY_MUTANTS,
  ...GRAPH_MUTANTS,
  ...SHARED_MUTANTS,
} satisfies Readonly<Record<string, Mutant>>

export type Rule = keyof typeof MUTANTS

export const RULES = Object.keys(MUTANTS) as Rule[]

/** The kind of the programs that notice when a rule is broken. */
export function kindOf(rule: Rule): Kind {
  const { kind = 'one-thread' }: Mutant = MUTANTS[rule]
  return kind
}

/** Breaks a rule until the returned function is called. */
export function breakRule(rule: Rule): () => void {
  return MUTANTS[rule].break()
}
