// The events of the shown range as a table: those of the blocks that a search or a filter finds. A closed list asks for
// nothing.

import { byId } from '../elements.js'
import type { Page, ViewPart } from '../page.js'
import type { ListAnswer } from '../protocol.js'
import { formatBytes, formatCount } from '../text.js'
import { Delayed } from '../worker-client.js'
import { ChoiceTable } from './choice-table.js'

/** A list of this length is too much to draw in each step of a zoom, so it waits for the last one. */
const DELAY_MS = 150

export class EventList implements ViewPart {
  private readonly table: ChoiceTable
  private readonly delayed: Delayed
  private readonly open = byId<HTMLButtonElement>('list')
  private asked = ''
  private answer: ListAnswer | null = null
  private shownPinned: number | null = null

  constructor(private readonly page: Page) {
    this.delayed = new Delayed(page.client, DELAY_MS)
    this.table = new ChoiceTable(byId('events'), event => {
      const row = this.answer?.rows.find(each => String(each.event) === event)
      if (row !== undefined) page.update({ pinned: row.block })
    })
    this.open.addEventListener('click', () => page.update({ listed: !page.state.listed }))
    page.views.push(this)
  }

  show(): void {
    const { page, open } = this
    const { state, colours } = page
    const found = colours?.found ?? null
    const blocks =
      found === null
        ? 'all allocations and frees'
        : found === 1
          ? 'those of the block found'
          : `those of the ${formatCount(found)} blocks found`
    byId('events-section').hidden = found === 0 && !state.listed
    open.textContent = state.listed ? 'close the list' : `list ${blocks}`
    open.setAttribute('aria-expanded', String(state.listed))
    byId('events-table').hidden = byId('events-text').hidden = !state.listed
    if (!state.listed) {
      this.asked = ''
      return
    }
    const { recording, from, to, axis, maps } = state
    const wanted = JSON.stringify([recording, from, to, axis, maps[0], colours?.version])
    if (wanted === this.asked) {
      if (state.pinned !== this.shownPinned) this.table.mark(this.chosen())
      return
    }
    this.asked = wanted
    this.delayed.run(() => page.client.during(this.fill()))
  }

  private async fill(): Promise<void> {
    const { page } = this
    const { from, to, axis, maps } = page.state
    const last = axis === 'event' ? Math.ceil(to) - 1 : page.eventAt(to)
    this.answer = await page.client.ask('list', { from: page.eventAt(from), to: last, policy: maps[0] ?? null })
    this.showRows(this.answer)
  }

  private showRows({ rows, total }: ListAnswer): void {
    const { page } = this
    const { maps } = page.state
    const label = page.info.policies.find(({ policy }) => policy === maps[0])?.label
    const shown = rows.map(({ event, isFree, bytes, address, line }) => ({
      key: String(event),
      label: [formatCount(event)],
      title: 'select the block',
      cells: [
        isFree ? 'freed' : 'allocated',
        formatBytes(bytes),
        line,
        Number.isNaN(address) ? '–' : `0x${address.toString(16)}`,
      ],
    }))
    const more = total - rows.length
    const last = more === 0 ? null : `and ${formatCount(more)} more: zoom in, or search`
    const where = label === undefined ? '' : `; addresses of ${label}`
    byId('events-text').textContent = `${formatCount(total)} in the shown range${where}; a row selects its block`
    this.table.show(['event', 'action', 'size', 'line', 'address'], shown, this.chosen(), last)
  }

  /** The rows of the selected block. */
  private chosen(): string[] {
    const { pinned } = this.page.state
    this.shownPinned = pinned
    return (this.answer?.rows ?? []).filter(({ block }) => block === pinned).map(({ event }) => String(event))
  }
}
