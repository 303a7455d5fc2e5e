// The icicle of the changes between two recordings. A box is as wide as the bytes that grew and shrank below it, so
// that changes that cancel each other are seen. Its colour tells the sign of their sum.

import type { PictureFrame } from '../../picture/picture.js'
import { isMachinery, siteText } from '../../picture/stack-text.js'

/** The change of one call stack. */
export interface StackChange {
  /** the innermost first; none if no stack was recorded */
  readonly frames: readonly PictureFrame[]
  /** bytes more than before */
  readonly bytes: number
}

/** Everything that changed in a call and in the calls below it. */
export interface ChangeBox {
  readonly depth: number
  /** left edge and width as shares of the whole */
  readonly left: number
  readonly width: number
  readonly label: string
  /** where the call is, for the box's description */
  readonly place: string
  readonly grownBytes: number
  readonly shrunkBytes: number
}

/** A box narrower than this share of the whole is left out. */
const LEAST_SHARE = 1 / 1500

interface Node {
  readonly label: string
  readonly place: string
  readonly children: Map<string, Node>
  grownBytes: number
  shrunkBytes: number
}

/** The boxes of the icicle, outermost calls first, each before those below it. */
export function changeIcicle(changes: readonly StackChange[]): ChangeBox[] {
  const root = newNode('all', '')
  for (const { frames, bytes } of changes) {
    let node = add(root, bytes)
    for (const line of pathOf(frames)) {
      // Lines move when a program changes.
      const id = `${line.name}\n${line.file}`
      let child = node.children.get(id)
      if (child === undefined) {
        child = newNode(line.name, line.file === '' ? '' : siteText(line))
        node.children.set(id, child)
      }
      node = add(child, bytes)
    }
  }
  const boxes: ChangeBox[] = []
  const whole = moved(root)
  const place = ({ children, ...node }: Node, depth: number, left: number) => {
    const width = moved(node) / whole
    if (width < LEAST_SHARE) return
    boxes.push({ depth, left, width, ...node })
    let at = left
    for (const child of [...children.values()].sort((a, b) => moved(b) - moved(a))) {
      place(child, depth + 1, at)
      at += moved(child) / whole
    }
  }
  if (whole > 0) place(root, 0, 0)
  return boxes
}

/** The lines of the program, the outermost first; a call that recurs directly is one. */
function pathOf(frames: readonly PictureFrame[]): PictureFrame[] {
  if (frames.length === 0) return [{ name: 'no call stack', file: '', line: 0 }]
  const own = frames.filter(line => !isMachinery(line))
  const shown = own.length > 0 ? own : frames
  return shown.filter(({ name }, i) => i === 0 || shown[i - 1].name !== name).reverse()
}

function newNode(label: string, place: string): Node {
  return { label, place, children: new Map(), grownBytes: 0, shrunkBytes: 0 }
}

function add(node: Node, bytes: number): Node {
  if (bytes > 0) node.grownBytes += bytes
  else node.shrunkBytes -= bytes
  return node
}

function moved({ grownBytes, shrunkBytes }: Pick<Node, 'grownBytes' | 'shrunkBytes'>): number {
  return grownBytes + shrunkBytes
}
