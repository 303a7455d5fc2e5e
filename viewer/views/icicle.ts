// Draws the boxes of an icicle as elements of a list.

import { element } from '../elements.js'

const ROW_HEIGHT = 21
/** A box of fewer pixels has no text, since a name cut to a letter says nothing. */
const LEAST_LABEL = 46

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

/** Fills a list with boxes, and makes it as high as they are; it is hidden without boxes. */
export function drawIcicle(list: HTMLElement, boxes: readonly DrawnBox[]): void {
  const depth = boxes.reduce((most, box) => Math.max(most, box.depth), 0)
  list.style.height = `${(depth + 1) * ROW_HEIGHT}px`
  list.hidden = boxes.length === 0
  list.replaceChildren(
    ...boxes.map(box => {
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
