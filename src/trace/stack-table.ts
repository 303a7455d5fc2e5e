import type { Frame } from './trace.js'

const LONG_STACK = 256

/** Call stacks by content: a training step repeats a few thousand of them a million times. */
export class StackTable {
  /** number 0 is the empty stack */
  readonly stacks: (readonly Frame[])[] = [[]]
  private readonly frames = new Map<string, NumberedFrame>()
  private readonly byHash = new Map<number, number[]>()
  /** a long list that many events share must not be compared for each of them */
  private readonly long = new Map<readonly Frame[], number>()

  /** The one object that stands for this frame. */
  frame(filename: string, line: number, name: string): Frame {
    const key = `${line}\n${name}\n${filename}`
    let frame = this.frames.get(key)
    if (frame === undefined) {
      frame = new NumberedFrame(filename, line, name, this.frames.size)
      this.frames.set(key, frame)
    }
    return frame
  }

  /** The number of a stack of frames that all came from `frame`. */
  number(frames: readonly Frame[]): number {
    if (frames.length === 0) return 0
    if (frames.length < LONG_STACK) return this.find(frames)
    let number = this.long.get(frames)
    if (number === undefined) {
      number = this.find(frames)
      this.long.set(frames, number)
    }
    return number
  }

  private find(frames: readonly Frame[]): number {
    let hash = frames.length
    for (let i = 0; i < frames.length; i++) hash = (Math.imul(hash, 31) + NumberedFrame.numberOf(frames[i])) | 0
    let numbers = this.byHash.get(hash)
    if (numbers === undefined) this.byHash.set(hash, (numbers = []))
    for (const number of numbers) if (sameFrames(this.stacks[number], frames)) return number
    numbers.push(this.stacks.length)
    return this.stacks.push(frames) - 1
  }

  /** Whether `value` came from `frame` of a table. */
  static isFrame(value: unknown): value is Frame {
    return value instanceof NumberedFrame
  }
}

class NumberedFrame implements Frame {
  /** private, so that it appears in no output */
  readonly #number: number

  constructor(
    readonly filename: string,
    readonly line: number,
    readonly name: string,
    number: number,
  ) {
    this.#number = number
  }

  static numberOf(frame: Frame): number {
    return (frame as NumberedFrame).#number
  }
}

function sameFrames(a: readonly Frame[], b: readonly Frame[]): boolean {
  if (a.length !== b.length) return false
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false
  return true
}
