// One pinned block: its facts, its call stack, and what lay at its address before and after.

import { button, byId, element } from '../elements.js'
import type { Page } from '../page.js'
import type { BlockInfo, HistoryAnswer } from '../protocol.js'
import { formatBytes, formatCount, formatUs } from '../text.js'

const NO_STACK_BEFORE = 'No call stack: the block is from before the recording began. Start the recording earlier.'
const NO_STACK =
  "No call stack was recorded. In PyTorch, torch.cuda.memory._record_memory_history(stacks='python') records them."

export class BlockPanel {
  constructor(private readonly page: Page) {
    page.onPinned = () => this.showPinned()
  }

  private async showPinned(): Promise<void> {
    const { page } = this
    const { pinned, maps } = page.state
    const panel = byId('block')
    panel.hidden = pinned === null
    if (pinned === null) return
    const info = await page.client.ask('pick', { block: pinned })
    if (info === null) return
    const policy = maps[0]
    const history = policy === undefined ? null : await page.client.ask('history', { block: pinned, policy })
    if (page.state.pinned === pinned) panel.replaceChildren(...this.contents(info, history))
  }

  private contents(info: BlockInfo, history: HistoryAnswer | null): HTMLElement[] {
    const { page } = this
    const title = element('h2', {}, `${formatBytes(info.bytes)} — ${info.group}`)
    const heading = element('div', { class: 'row' }, title)
    heading.append(button('unpin', () => page.update({ pinned: null }), { title: 'Esc' }))
    const facts = element('dl')
    const fact = (name: string, text: string) => facts.append(element('dt', {}, name), element('dd', {}, text))
    const from = info.allocatedAt < 0 ? 'before the recording' : `event ${formatCount(info.allocatedAt)}`
    fact('from', from)
    fact('to', info.freedAt < 0 ? 'held to the end' : `event ${formatCount(info.freedAt)}`)
    if (info.lifeUs !== null) fact('lived', formatUs(info.lifeUs))
    fact('size', `${formatCount(info.bytes)} bytes`)
    fact('stream', info.stream.replace('stream ', ''))
    if (info.pool !== '') fact('pool', info.pool)
    if (info.tag !== '') fact('tag', info.tag)
    for (const { label, address } of info.addresses) fact(label, `0x${address.toString(16)}`)
    const first = element('div', {}, facts, ...this.history(info, history))
    const stack =
      info.stack.length === 0
        ? element('p', { class: 'quiet' }, info.allocatedAt < 0 ? NO_STACK_BEFORE : NO_STACK)
        : element('ol', { class: 'stack' }, ...info.stack.map(line => element('li', {}, line)))
    return [heading, element('div', { class: 'columns' }, first, element('div', {}, 'allocated by', stack))]
  }

  private history(info: BlockInfo, history: HistoryAnswer | null): HTMLElement[] {
    if (history === null || history.total === 0) return []
    const label = this.page.info.policies.find(({ policy }) => policy === this.page.state.maps[0])?.label ?? ''
    const list = element('ol', { 'aria-label': 'blocks at this address' })
    for (const row of history.rows) {
      const from = row.allocatedAt < 0 ? 'before' : formatCount(row.allocatedAt)
      const to = row.freedAt < 0 ? 'the end' : formatCount(row.freedAt)
      const text = `${formatBytes(row.bytes)} from ${from} to ${to} — ${row.group}`
      list.append(element('li', {}, row.block === info.block ? element('strong', {}, text) : text))
    }
    const count = history.total === 1 ? 'Only this block' : `${formatCount(history.total)} blocks`
    return [element('p', { class: 'quiet' }, `${count} lay at its address (${label}):`), list]
  }
}
