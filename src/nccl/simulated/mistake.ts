// How the simulation answers a wrong use of NCCL: by a result where NCCL notices, and loudly where it would hang,
// corrupt memory or crash.

/** A use of NCCL that would hang, corrupt memory or crash. It is a bug of the code that calls NCCL. */
export class NcclMistake extends Error {
  override name = 'NcclMistake'
}

/** A call that NCCL refuses; simulated-nccl.ts returns the result. */
export class NcclRefusal extends Error {
  override name = 'NcclRefusal'
  constructor(
    /** ncclResult_t */
    readonly result: number,
    message: string,
  ) {
    super(message)
  }
}

/** The mistakes so far. Work on a stream makes some, which end its context; every later call reports them as well. */
export class Mistakes {
  private first: NcclMistake | null = null

  /** Throws the mistake, here and in later calls. */
  readonly report = (fact: string): never => {
    const mistake = new NcclMistake(fact)
    this.first ??= mistake
    throw mistake
  }

  /** Throws the first mistake. */
  check(): void {
    if (this.first !== null) throw this.first
  }
}
