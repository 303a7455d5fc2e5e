// Modules of this package that the reader leaves out: a page reaches no GPU, and serves no pool.

/** No driver is an instance of it. */
export class NativeDriver {
  /** The only member that needs no instance. */
  static readonly open = (): never => {
    throw new Error('a page reaches no GPU')
  }

  readonly isSimulated = false
}

export function serveNew(): void {}
