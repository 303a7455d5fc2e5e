// Call stacks as paths in a trie of frames, so that a million deep stacks share their beginnings.

import type { CallStacks, Frame } from './trace.js'

/** One stack frame of a table, for a reader that collects the frames of a stack. */
export class FrameEntry {
  constructor(
    readonly frame: Frame,
    readonly number: number,
  ) {}
}

const FIRST_CAPACITY = 256
const ROOT = 0
const NO_STACK = -1

/** Call stacks by content: a training run repeats a few thousand stacks a million times. */
export class StackTable {
  private readonly frames: Frame[] = []
  /** by file name, then by function name, then by line */
  private readonly entries = new Map<string, Map<string, Map<number, FrameEntry>>>()
  private nodes = 1
  private parent = new Int32Array(FIRST_CAPACITY)
  private frame = new Int32Array(FIRST_CAPACITY)
  /** by node: the stack that ends there, or NO_STACK */
  private stack = new Int32Array(FIRST_CAPACITY).fill(NO_STACK)
  /** nodes by hash of parent and frame, with linear probing; 0 is an empty place */
  private places = new Int32Array(2 * FIRST_CAPACITY)
  private stacks = 1
  private node = new Int32Array(FIRST_CAPACITY)
  /** the nodes of the last stack: most stacks begin like the stack before */
  private path = new Int32Array(FIRST_CAPACITY)
  private pathDepth = 0

  constructor() {
    this.frame[ROOT] = -1
    this.stack[ROOT] = 0
  }

  /** The entry for a frame, the same each time. */
  entry(filename: string, line: number, name: string): FrameEntry {
    let ofFile = this.entries.get(filename)
    if (ofFile === undefined) {
      ofFile = new Map()
      this.entries.set(filename, ofFile)
    }
    let ofFunction = ofFile.get(name)
    if (ofFunction === undefined) {
      ofFunction = new Map()
      ofFile.set(name, ofFunction)
    }
    const known = ofFunction.get(line)
    if (known !== undefined) return known
    const entry = new FrameEntry({ filename, line: isLine(line) ? line : 0, name }, this.frames.length)
    this.frames.push(entry.frame)
    ofFunction.set(line, entry)
    return entry
  }

  /**
   * The number of the stack `items[from]` to `items[to - 1]`, innermost frame first; -1 if an item is not a FrameEntry.
   */
  number(items: readonly unknown[], from = 0, to = items.length): number {
    const depth = to - from
    if (depth > this.path.length) this.path = enlarged(this.path, 2 * depth)
    const { path } = this
    let node = ROOT
    let isSame = true
    for (let at = 0; at < depth; at++) {
      const entry = items[to - 1 - at]
      if (!(entry instanceof FrameEntry)) {
        this.pathDepth = at
        return NO_STACK
      }
      if (isSame && at < this.pathDepth && this.frame[path[at]] === entry.number) node = path[at]
      else {
        isSame = false
        node = this.child(node, entry.number)
        path[at] = node
      }
    }
    this.pathDepth = depth
    if (this.stack[node] === NO_STACK) {
      if (this.stacks === this.node.length) this.node = enlarged(this.node, 2 * this.stacks)
      this.node[this.stacks] = node
      this.stack[node] = this.stacks++
    }
    return this.stack[node]
  }

  /** All stacks so far. */
  callStacks(): CallStacks {
    return {
      count: this.stacks,
      node: this.node.subarray(0, this.stacks),
      parent: this.parent.subarray(0, this.nodes),
      frame: this.frame.subarray(0, this.nodes),
      frames: this.frames,
    }
  }

  /** The node below `parent` for a frame, made at its first use. */
  private child(parent: number, frame: number): number {
    let place = this.placeOf(parent, frame)
    let node = this.places[place]
    if (node !== 0) return node
    if (2 * this.nodes >= this.places.length) {
      this.grow()
      place = this.placeOf(parent, frame)
    }
    node = this.nodes++
    this.parent[node] = parent
    this.frame[node] = frame
    this.places[place] = node
    return node
  }

  /** Where the node is, or the empty place for it. */
  private placeOf(parent: number, frame: number): number {
    const { places } = this
    const mask = places.length - 1
    let hash = Math.imul(parent, 0x9e3779b1) ^ Math.imul(frame, 0x85ebca6b)
    hash ^= hash >>> 15
    for (let place = hash & mask; ; place = (place + 1) & mask) {
      const node = places[place]
      if (node === 0 || (this.parent[node] === parent && this.frame[node] === frame)) return place
    }
  }

  private grow(): void {
    const capacity = this.places.length
    this.parent = enlarged(this.parent, capacity)
    this.frame = enlarged(this.frame, capacity)
    const stack = new Int32Array(capacity).fill(NO_STACK)
    stack.set(this.stack)
    this.stack = stack
    this.places = new Int32Array(2 * capacity)
    for (let node = 1; node < this.nodes; node++) {
      this.places[this.placeOf(this.parent[node], this.frame[node])] = node
    }
  }
}

/** A damaged file may have any number in place of a line. */
function isLine(value: number): boolean {
  return Number.isSafeInteger(value) && value > 0
}

function enlarged(from: Int32Array, length: number): Int32Array<ArrayBuffer> {
  const larger = new Int32Array(length)
  larger.set(from)
  return larger
}
