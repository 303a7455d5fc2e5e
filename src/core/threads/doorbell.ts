/** Lets other threads wake one thread, by an int32 in shared memory. */
export class Doorbell {
  private readonly words: Int32Array

  constructor(readonly buffer: SharedArrayBuffer = new SharedArrayBuffer(4)) {
    this.words = new Int32Array(buffer)
  }

  /** How often it was rung. */
  get rings(): number {
    return Atomics.load(this.words, 0)
  }

  ring(): void {
    Atomics.add(this.words, 0, 1)
    Atomics.notify(this.words, 0)
  }

  /** Sleeps until it was rung more often than `rings`, or until the time is over. */
  sleep(rings: number, milliseconds: number): void {
    Atomics.wait(this.words, 0, rings, milliseconds)
  }
}
