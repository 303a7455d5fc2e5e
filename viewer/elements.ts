// Elements of the page. Texts of a recording get in by textContent only, so no markup in them has an effect.

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

export function swatch(colour: string): HTMLElement {
  const made = element('span', { class: 'swatch', 'aria-hidden': 'true' })
  made.style.background = colour
  return made
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
