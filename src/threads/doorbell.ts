/** Wakes one thread from others, by an int32 in shared memory. */
export class Doorbell {
  private readonly words: Int32Array

  constructor(readonly buffer: SharedArrayBuffer = new SharedArrayBuffer(4)) {
    this.words = new Int32Array(buffer)
  }

  /** How often it rang. */
  get rings(): number {
    return Atomics.load(this.words, 0)
  }

  ring(): void {
    Atomics.add(this.words, 0, 1)
    Atomics.notify(this.words, 0)
  }

  /** Sleeps until it has step more often than `rings`, or for so many milliseconds. */
  sleep(rings: number, milliseconds: number): void {
    Atomics.wait(this.words, 0, rings, milliseconds)
  }
}
