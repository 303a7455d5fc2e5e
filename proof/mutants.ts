// The rules of stream order, with a mutant for each: a proof that would not notice a broken rule proves nothing. A
// mutant replaces a method while a program runs; the product has no code for it.

import { GRAPH_MUTANTS } from './graph-mutants.js'
import type { Kind } from './kinds.js'
import { MEMORY_MUTANTS } from './memory-mutants.js'
import { ORDER_MUTANTS } from './order-mutants.js'
import { SHARED_MUTANTS } from './shared-mutants.js'
import { SLAB_MUTANTS } from './slab-mutants.js'
import { SLEEP_MUTANTS } from './sleep-mutants.js'
import { VIEW_MUTANTS } from './view-mutants.js'

interface Mutant {
  /** the fault of the broken library */
  readonly broken: string
  /** the kinds of programs that notice it, each by itself; by default those of one thread */
  readonly kinds?: readonly Kind[]
  /** breaks the rule, and returns a function that restores it */
  readonly break: () => () => void
}

export const MUTANTS = {
  ...ORDER_MUTANTS,
  ...MEMORY_MUTANTS,
  ...VIEW_MUTANTS,
  ...GRAPH_MUTANTS,
  ...SHARED_MUTANTS,
  ...SLAB_MUTANTS,
  ...SLEEP_MUTANTS,
} satisfies Readonly<Record<string, Mutant>>

export type Rule = keyof typeof MUTANTS

export const RULES = Object.keys(MUTANTS) as Rule[]

/** The kinds of programs that notice when a rule is broken. */
export function kindsOf(rule: Rule): readonly Kind[] {
  const { kinds = ['one-thread'] }: Mutant = MUTANTS[rule]
  return kinds
}

/** Breaks a rule until the returned function is called. */
export function breakRule(rule: Rule): () => void {
  return MUTANTS[rule].break()
}
