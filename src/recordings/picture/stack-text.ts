// Lines of call stacks as a page shows them.

import { shortened } from '../../core/base/shown-text.js'
import type { Frame } from '../trace/trace.js'
import type { Picture, PictureFrame, StackTree } from './picture.js'
import { shortPath } from './short-path.js'

const NATIVE = /\.(c|cc|cpp|cu|cuh|h|hpp|inl)$/
const DISPATCHER = /(^|\/)torch\/(_ops|utils\/_device|utils\/_contextlib|_compile|autograd\/function)\.py$/

/** Whether a line is of an allocator, or of machinery between Python and it. */
function isMachinery({ file, name }: PictureFrame): boolean {
  return !file.includes('.') || NATIVE.test(file) || DISPATCHER.test(file) || name === '_call_impl'
}

/** The frame of each node's innermost line besides machinery; else its own; -1 for the root. */
export function innermostFrames({ frames, parent, frame }: StackTree): Int32Array {
  const hidden = Uint8Array.from(frames, each => (isMachinery(each) ? 1 : 0))
  const innermost = new Int32Array(parent.length).fill(-1)
  for (let node = 1; node < parent.length; node++) {
    const above = innermost[parent[node]]
    innermost[node] = hidden[frame[node]] === 0 || above < 0 ? frame[node] : above
  }
  return innermost
}

/** A line as the page has it: very long names are cut. */
export function pictureFrame({ filename, line, name }: Frame): PictureFrame {
  return { file: shortened(filename), line, name: shortened(name) }
}

/** `nn/modules/linear.py:116 forward`: the end of the path says enough. */
export function siteText({ file, line, name }: PictureFrame): string {
  const path = shortPath(file)
  return shortened(line > 0 ? `${path}:${line} ${name}` : `${path === '??' ? '' : `${path} `}${name}`)
}

/** The lines of a node's stack, the innermost first. */
export function linesOf({ frames, parent, frame }: StackTree, node: number): PictureFrame[] {
  const lines: PictureFrame[] = []
  for (let at = node; at > 0; at = parent[at]) lines.push(frames[frame[at]])
  return lines
}

/**
 * The calls of a stack, without machinery unless it is wanted or there is nothing else. A call that recurs directly is
 * one.
 */
export function callsOf(lines: readonly PictureFrame[], machinery: boolean): PictureFrame[] {
  const own = machinery ? lines : lines.filter(line => !isMachinery(line))
  const shown = own.length > 0 ? own : lines
  return shown.filter(({ name }, i) => i === 0 || shown[i - 1].name !== name)
}

/** By block, 1 where its stack, tag or pool has the text; null for an empty text. Letters of either case match. */
export function findBlocks({ stacks, blocks, names }: Picture, text: string): Uint8Array | null {
  const wanted = text.trim().toLowerCase()
  if (wanted === '') return null
  const has = (line: string) => line.toLowerCase().includes(wanted)
  const inFrame = stacks.frames.map(({ file, line, name }) => has(`${file}:${line} ${name}`))
  const inStack = new Uint8Array(stacks.parent.length)
  for (let node = 1; node < inStack.length; node++) {
    inStack[node] = inFrame[stacks.frame[node]] ? 1 : inStack[stacks.parent[node]]
  }
  const [inTag, inPool] = [names.tag.map(has), names.pool.map(has)]
  return Uint8Array.from(blocks.stack, (node, block) =>
    inStack[node] === 1 || inTag[blocks.tag[block]] || inPool[blocks.pool[block]] ? 1 : 0,
  )
}
