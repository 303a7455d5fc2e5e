// Assertions of the library about its own state.

/** Throws AssertionError unless `condition` holds. `fact` says what should hold: "neighbours should have merged". */
export function assert(condition: boolean, fact: string): asserts condition {
  if (!condition) throw new AssertionError(fact)
}

/** A broken promise of this library: a bug in it, never a mistake of the caller. */
export class AssertionError extends Error {
  override name = 'AssertionError'
  constructor(fact: string) {
    super(`broken promise: ${fact}; please report this`)
  }
}
