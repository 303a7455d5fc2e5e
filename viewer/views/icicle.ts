// Draws the boxes of an icicle as elements of a list.

import { element } from '../elements.js'
import { formatCount } from '../text.js'

const ROW_HEIGHT = 21
/** A box of fewer pixels has no text, since a name cut to a letter says nothing. */
const LEAST_LABEL = 46
/** A browser takes seconds to draw more. */
const MOST_ROWS = 1000

/** A box, its left edge and width as shares of the whole. */
interface DrawnBox {
  readonly depth: number
  readonly left: number
  readonly width: number
  /** the text in it */
  readonly label: string
  /** its description if the label does not fit */
  readonly text: string
  /** the tip under the pointer */
  readonly title: string
  readonly background: string
}

/**
 * Fills a list with boxes, and makes it as high as they are; it is hidden without boxes. Rows beyond MOST_ROWS become
 * one row that counts them.
 */
export function drawIcicle(list: HTMLElement, boxes: readonly DrawnBox[]): void {
  const rows = boxes.reduce((most, box) => Math.max(most, box.depth + 1), 1)
  const drawn = boxes.filter(({ depth }) => depth < MOST_ROWS)
  if (rows > MOST_ROWS) drawn.push(rowOf(rows - MOST_ROWS))
  list.style.height = `${Math.min(rows, MOST_ROWS + 1) * ROW_HEIGHT}px`
  list.hidden = boxes.length === 0
  list.replaceChildren(
    ...drawn.map(box => {
      const made = element('div', { role: 'listitem', title: box.title })
      if (box.width * list.clientWidth > LEAST_LABEL) made.textContent = box.label
      else made.setAttribute('aria-label', box.text)
      made.style.left = `${box.left * 100}%`
      made.style.width = `${box.width * 100}%`
      made.style.top = `${box.depth * ROW_HEIGHT}px`
      made.style.background = box.background
      return made
    }),
  )
}

/** A row in place of `count` deeper ones. */
function rowOf(count: number): DrawnBox {
  const text = `… ${formatCount(count)} more rows`
  return { depth: MOST_ROWS, left: 0, width: 1, label: text, text, title: text, background: 'transparent' }
}
