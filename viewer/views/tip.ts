// The hint beside the pointer, or below a focused element.

import { byId, element } from '../elements.js'

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
