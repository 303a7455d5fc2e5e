// Bars of memory by its uses.

import { element } from '../elements.js'

/** The classes of the uses, in the order of a bar. */
const USES = ['asked', 'cached', 'pending', 'free'] as const

const NAMES: Readonly<Record<(typeof USES)[number], string>> = {
  asked: 'in use',
  cached: 'cached',
  pending: 'freed, work may still run',
  free: 'obtained and unused',
}

/** The colours of the uses, by name. */
export function legendOfUses(): HTMLElement {
  const items = USES.map(use => element('li', {}, element('i', { class: use }), NAMES[use]))
  return element('ul', { class: 'legend' }, ...items)
}

/** Bytes by use. */
export type UseBytes = Readonly<Partial<Record<(typeof USES)[number], number>>>

export class Bar {
  readonly track = element('div', { class: 'track', 'aria-hidden': 'true' })
  private readonly parts = USES.map(use => element('i', { class: use }))

  constructor() {
    this.track.append(...this.parts)
  }

  /** Shows the bytes, as shares of `whole`. */
  show(bytes: UseBytes, whole: number): void {
    for (const [index, use] of USES.entries()) {
      this.parts[index].style.width = `${((bytes[use] ?? 0) / Math.max(1, whole)) * 100}%`
    }
  }
}
