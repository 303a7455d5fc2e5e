// Elements of the page. Texts of a recording get in by textContent only, so no markup in them has an effect.

import { policyColour, policyLine, type Theme } from '../src/recordings/picture/drawing/theme.js'
import { isMarked, MARK, TILE } from '../src/recordings/picture/patterns.js'

export function byId<T extends HTMLElement = HTMLElement>(id: string): T {
  return document.getElementById(id) as T
}

type Child = Node | string | null

/** An element with attributes and children. */
export function element<Tag extends keyof HTMLElementTagNameMap>(
  tag: Tag,
  attributes: Readonly<Record<string, string>> = {},
  ...children: readonly Child[]
): HTMLElementTagNameMap[Tag] {
  const made = document.createElement(tag)
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value)
  made.append(...children.filter(child => child !== null))
  return made
}

/** Sizes, and what has them. */
export function sizeList(rows: readonly (readonly [size: string, text: string])[]): HTMLElement {
  const lines = rows.map(([size, text]) => element('li', {}, element('b', {}, size), element('span', {}, text)))
  return element('ol', { class: 'sizes' }, ...lines)
}

/** The colour and the pattern of a cell, in a legend. */
export function swatch(theme: Theme, cell: number): HTMLElement {
  const made = element('span', { class: 'swatch', 'aria-hidden': 'true' })
  made.style.background = theme.cells[cell]
  if (theme.cells[MARK + cell] === theme.cells[cell]) return made
  const canvas = element('canvas', { width: String(TILE), height: String(TILE) })
  const context = canvas.getContext('2d')!
  context.fillStyle = theme.cells[MARK + cell]
  for (let i = 0; i < TILE * TILE; i++) {
    const [x, y] = [i % TILE, Math.floor(i / TILE)]
    if (isMarked(cell, x, y)) context.fillRect(x, y, 1, 1)
  }
  made.style.backgroundImage = `url(${canvas.toDataURL()})`
  return made
}

/** A piece of a policy's line, in a legend. */
export function lineSample(policy: string, theme: Theme): SVGElement {
  const { width, dash } = policyLine(policy)
  const [sample, line] = ['svg', 'line'].map(tag => document.createElementNS('http://www.w3.org/2000/svg', tag))
  const looks = { stroke: policyColour(policy, theme), 'stroke-width': width, 'stroke-dasharray': dash.join(' ') }
  for (const [name, value] of Object.entries({ x1: 0, x2: 28, y1: 4, y2: 4, ...looks })) {
    line.setAttribute(name, String(value))
  }
  for (const [name, value] of Object.entries({ class: 'line', viewBox: '0 0 28 8', 'aria-hidden': 'true' })) {
    sample.setAttribute(name, value)
  }
  sample.append(line)
  return sample as SVGElement
}

/** A button that calls `action`. */
export function button(
  text: string,
  action: (event: MouseEvent) => void,
  attributes: Readonly<Record<string, string>> = {},
) {
  const made = element('button', { type: 'button', ...attributes }, text)
  made.addEventListener('click', action)
  return made
}
