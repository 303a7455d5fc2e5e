import type { PictureFrame, StackTree } from './picture.js'

/** Merges call stacks into a tree: stacks of real programs are long, and differ in their last calls only. */
export class StackTreeBuilder {
  private readonly frames: PictureFrame[] = []
  private readonly frameNumbers = new Map<string, number>()
  private readonly parent: number[] = [0]
  private readonly frame: number[] = [-1]
  /** by parent and frame */
  private readonly nodes = new Map<number, number>()

  /** The node of a stack, outermost call first. */
  node(stack: readonly PictureFrame[]): number {
    let node = 0
    for (const each of stack) node = this.child(node, this.frameNumber(each))
    return node
  }

  build(): StackTree {
    return { frames: this.frames, parent: Int32Array.from(this.parent), frame: Int32Array.from(this.frame) }
  }

  private frameNumber(frame: PictureFrame): number {
    const key = `${frame.line}\n${frame.name}\n${frame.file}`
    let number = this.frameNumbers.get(key)
    if (number === undefined) {
      number = this.frames.push(frame) - 1
      this.frameNumbers.set(key, number)
    }
    return number
  }

  private child(parent: number, frame: number): number {
    const key = parent * 2 ** 26 + frame
    let node = this.nodes.get(key)
    if (node === undefined) {
      node = this.parent.push(parent) - 1
      this.frame.push(frame)
      this.nodes.set(key, node)
    }
    return node
  }
}
