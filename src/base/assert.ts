/** States a promise of our own code. The message is the fact that should hold: "neighbours should have merged". */
export function assert(condition: boolean, fact: string): asserts condition {
  if (!condition) throw new AssertionError(fact)
}

/** A promise of our own was broken: a bug in this library, never the caller's mistake. */
export class AssertionError extends Error {
  override name = 'AssertionError'
  constructor(fact: string) {
    super(`broken promise: ${fact}; please report this`)
  }
}
