// Modules of this package that the reader leaves out: a page reaches no GPU, and serves no pool.

/** No driver is an instance of it. */
export function NativeDriver(): void {}

NativeDriver.open = (): never => {
  throw new Error('a page reaches no GPU')
}

export function serveNew(): void {}

export class WarmUp {
  runWhile(): void {}
}
