// The hint beside the pointer, below a focused element, or beside a place that keys have reached.

import { byId, element } from '../elements.js'
import type { BlockInfo, BlockLine, HoleInfo, PlaceInfo } from '../protocol.js'
import { formatBytes, formatCount, formatUs } from '../text.js'

/** The innermost lines of a call stack. */
const MOST_LINES = 5

/** A point of the window. */
export interface Point {
  readonly clientX: number
  readonly clientY: number
}

/** Shows lines at a point of the window, the first in bold. */
export function showTip({ clientX, clientY }: Point, lines: readonly string[]): void {
  const tip = byId('tip')
  tip.replaceChildren(...lines.map((line, i) => element(i === 0 ? 'b' : 'p', {}, line)))
  tip.hidden = false
  const { width, height } = tip.getBoundingClientRect()
  const left = clientX + 16 + width > innerWidth ? clientX - width - 12 : clientX + 16
  const top = clientY + 16 + height > innerHeight ? clientY - height - 12 : clientY + 16
  tip.style.left = `${Math.max(4, left)}px`
  tip.style.top = `${Math.max(4, top)}px`
}

export function hideTip(): void {
  byId('tip').hidden = true
}

/** The lines about a place of a picture. */
export function placeLines({ block, hole, isSmall, from, to }: PlaceInfo): string[] {
  if (block !== null) return blockLines(block)
  if (hole !== null) return holeLines(hole, to - from)
  return [isSmall ? `${formatBytes(to - from)} in blocks below half a pixel` : 'no memory was obtained here']
}

function blockLines(block: BlockInfo): string[] {
  const life = block.lifeUs === null ? '' : `, for ${formatUs(block.lifeUs)}`
  const from = block.allocatedAt < 0 ? 'since before the recording' : `from event ${formatCount(block.allocatedAt)}`
  const to = block.freedAt < 0 ? 'held to the end' : `to ${formatCount(block.freedAt)}`
  return [
    `${formatBytes(block.bytes)} — ${block.group}`,
    `${from} ${to}${life}`,
    ...block.stack.slice(0, MOST_LINES).map(({ text }) => text),
  ]
}

function holeLines({ address, since, below, above, pieces }: HoleInfo, bytes: number): string[] {
  const from = since < 0 ? 'since before the recording' : `since event ${formatCount(since)}`
  const neighbour = (block: BlockLine | null) =>
    block === null ? 'the end of the memory' : `${formatBytes(block.bytes)} — ${block.group}`
  return [
    `hole of ${formatBytes(bytes)} at 0x${address.toString(16)}`,
    `unused ${from}`,
    ...(pieces === 1 ? [] : [`in ${formatCount(pieces)} pieces that were obtained one by one`]),
    `above: ${neighbour(above)}`,
    `below: ${neighbour(below)}`,
  ]
}
