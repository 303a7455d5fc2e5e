// Lines of call stacks as a page shows them.

import { shortened } from '../../core/base/shown-text.js'
import { callName, type NamedFrame, shownCalls, siteName } from '../trace/frames/call-sites.js'
import { narrowed, shortSite } from '../trace/frames/short-path.js'
import type { Picture, PictureFrame, StackTree } from './picture.js'

/** Letters of a path, and of a name. */
const MOST_LETTERS = 300
/** Letters of a file and its line in a legend. */
const LEGEND_LETTERS = 30

/** A line as the page has it: very long names are cut. */
export function pictureFrame({ file, line, name, kind }: NamedFrame): PictureFrame {
  return { file: cut(file), line, name: cut(name), kind }
}

/** A long path without its first folders, and within a name only if that is too long by itself. */
function cut(text: string): string {
  return shortened(narrowed(text, MOST_LETTERS), MOST_LETTERS)
}

/** A call: `nn/modules/linear.py:116 forward`. The end of the path says enough. */
export function callText(frame: PictureFrame): string {
  return cut(shortSite(callName(frame)))
}

/** The label of a group in a legend: a long path loses folders, and the name of the function stays whole. */
export function legendText(label: string): string {
  return narrowed(label, LEGEND_LETTERS)
}

/** The frame that names a stack: as a call, or the group of its machinery. */
export function siteText(frame: PictureFrame): string {
  return cut(shortSite(siteName(frame)))
}

/** The lines of a node's stack, the innermost first. */
export function linesOf({ frames, parent, frame }: StackTree, node: number): PictureFrame[] {
  const lines: PictureFrame[] = []
  for (let at = node; at > 0; at = parent[at]) lines.push(frames[frame[at]])
  return lines
}

/** The calls of a stack, without machinery unless it is wanted. A call that recurs directly is one. */
export function callsOf(lines: readonly PictureFrame[], machinery: boolean): PictureFrame[] {
  const shown = machinery ? lines : shownCalls(lines)
  return shown.filter(({ file, name }, i) => i === 0 || shown[i - 1].name !== name || shown[i - 1].file !== file)
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
