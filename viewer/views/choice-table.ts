// A table whose rows can be chosen: by a click anywhere in a row, or by its button. Only one button is a stop of Tab;
// ↑ and ↓ go on from there.

import { element } from '../elements.js'

/** A row as `ChoiceTable` shows it; the button is in its first cell. */
export interface ChoiceRow {
  readonly key: string
  readonly label: readonly (Node | string)[]
  /** the effect of a click */
  readonly title: string
  /** the texts of the other cells */
  readonly cells: readonly string[]
}

export class ChoiceTable {
  constructor(
    private readonly table: HTMLElement,
    choose: (key: string) => void,
  ) {
    table.addEventListener('click', ({ target }) => {
      const key = (target as HTMLElement).closest('tr')?.dataset['key']
      if (key !== undefined) choose(key)
    })
    table.addEventListener('keydown', event => this.key(event))
  }

  /** Shows rows. `chosen` has the keys of those that are on; `last` is the text of a row below them. */
  show(names: readonly string[], rows: readonly ChoiceRow[], chosen: readonly string[], last: string | null): void {
    const { table } = this
    const focused = this.focusedRow?.dataset['key']
    const head = element('tr', {}, ...names.map(name => element('th', { scope: 'col' }, name)))
    const body = rows.map(rowOf)
    if (last !== null) {
      body.push(element('tr', {}, element('td', { class: 'quiet', colspan: String(names.length) }, last)))
    }
    table.replaceChildren(element('thead', {}, head), element('tbody', {}, ...body))
    this.mark(chosen)
    const stop = body.find(row => row.dataset['key'] === focused) ?? body[0]
    const reached = stop?.querySelector('button')
    if (reached == null) return
    reached.tabIndex = 0
    if (focused !== undefined) reached.focus({ preventScroll: true })
  }

  /** Turns on the rows with these keys, and the others off. */
  mark(chosen: readonly string[]): void {
    for (const row of this.table.querySelectorAll<HTMLElement>('tr[data-key]')) {
      const isOn = chosen.includes(row.dataset['key']!)
      if (row.classList.contains('on') === isOn) continue
      row.classList.toggle('on')
      row.querySelector('button')!.setAttribute('aria-pressed', String(isOn))
    }
  }

  private get focusedRow(): HTMLElement | null {
    const { activeElement } = document
    return activeElement !== null && this.table.contains(activeElement) ? activeElement.closest('tr') : null
  }

  private key(event: KeyboardEvent): void {
    const rows = [...this.table.querySelectorAll<HTMLElement>('tr[data-key]')]
    const row = this.focusedRow
    const at = row === null ? -1 : rows.indexOf(row)
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: rows.length - 1 }[event.key]
    if (at < 0 || to === undefined) return
    event.preventDefault()
    const next = rows[to]?.querySelector('button')
    if (next == null) return
    row!.querySelector('button')!.tabIndex = -1
    next.tabIndex = 0
    next.focus()
  }
}

function rowOf({ key, label, title, cells }: ChoiceRow): HTMLElement {
  const choice = element('button', { type: 'button', tabindex: '-1', title, 'aria-pressed': 'false' }, ...label)
  return element('tr', { 'data-key': key }, element('td', {}, choice), ...cells.map(text => element('td', {}, text)))
}
