/** A change of the memory that a pool has of the device. */
export interface ReservedChange {
  /** bytes that the pool took from the device, or gave back to it */
  readonly bytes: number
  /** bytes that it has now */
  readonly reservedBytes: number
}

/** Tells a program when its pool grows or shrinks. A pool without callbacks has no watch. */
export class ReservedWatch {
  private reservedBytes = 0

  constructor(
    private readonly onGrow: ((change: ReservedChange) => void) | undefined,
    private readonly onTrim: ((change: ReservedChange) => void) | undefined,
  ) {}

  /** Looks at the bytes that the pool has after a call. The program hears of a change when that call has returned. */
  look(reservedBytes: number): void {
    const bytes = reservedBytes - this.reservedBytes
    if (bytes === 0) return
    this.reservedBytes = reservedBytes
    const listener = bytes > 0 ? this.onGrow : this.onTrim
    if (listener !== undefined) queueMicrotask(() => listener({ bytes: Math.abs(bytes), reservedBytes }))
  }
}
