// The drawer of the selected block: its facts, its call stack, and the blocks that held its address before and after.

import { button, byId, element } from '../elements.js'
import type { Page } from '../page.js'
import type { BlockInfo, BlockLine, HistoryAnswer } from '../protocol.js'
import { formatBytes, formatCount, formatUs } from '../text.js'
import { editorChoice, stackList } from './editor-links.js'

const NO_STACK_BEFORE = 'No call stack: the block is from before the recording began. Start the recording earlier.'
const NO_STACK =
  "No call stack was recorded. In PyTorch, torch.cuda.memory._record_memory_history(stacks='python') records them."
/** The life of a block fills this share of the pictures. */
const LIFE_PART = 0.8

export class BlockDrawer {
  private readonly drawer = byId('block')
  private readonly title = byId('block-title')
  private readonly neighbours = [byId<HTMLButtonElement>('block-before'), byId<HTMLButtonElement>('block-after')]
  /** the element with the focus when the drawer opened */
  private opener: Element | null = null
  private info: BlockInfo | null = null
  private history: HistoryAnswer | null = null
  /** the block that was selected first, whose address the steps stay at, and the block that they have reached */
  private walk: { first: number; at: number } | null = null

  constructor(private readonly page: Page) {
    page.onPinned = () => this.showPinned()
    byId('block-close').addEventListener('click', () => page.update({ pinned: null }))
    byId('block-life').addEventListener('click', () => this.showLife())
    this.neighbours.forEach((each, i) => {
      each.addEventListener('click', () => this.select(this.neighbour(i === 0 ? -1 : 1)))
    })
  }

  private async showPinned(): Promise<void> {
    const { page } = this
    const { pinned, maps } = page.state
    if (pinned === null) {
      this.walk = null
      this.close()
      return
    }
    if (this.walk?.at !== pinned) this.walk = { first: pinned, at: pinned }
    const { first } = this.walk
    const policy = maps[0]
    const [info, history] = await Promise.all([
      page.client.ask('block', { block: pinned }),
      policy === undefined ? null : page.client.ask('history', { block: pinned, first, policy }),
    ])
    if (info === null || page.state.pinned !== pinned) return
    Object.assign(this, { info, history })
    if (history !== null) this.walk = { first: history.first, at: pinned }
    this.fill(info)
    if (this.drawer.hidden) this.open()
    this.scrollToOwn()
  }

  private open(): void {
    this.opener = document.activeElement
    this.drawer.hidden = false
    document.documentElement.classList.add('has-drawer')
    // Of a page that opens with a selected block, nothing was clicked.
    if (this.opener === null || this.opener === document.body) return
    this.opener.scrollIntoView({ block: 'nearest' })
    this.drawer.focus({ preventScroll: true })
  }

  private close(): void {
    const hadFocus = this.drawer.contains(document.activeElement)
    this.drawer.hidden = true
    document.documentElement.classList.remove('has-drawer')
    const back = this.opener?.isConnected ? (this.opener as HTMLElement) : byId('stacked')
    if (hadFocus) back.focus({ preventScroll: true })
  }

  private fill(info: BlockInfo): void {
    const { page } = this
    this.title.textContent = `${formatBytes(info.bytes)} — ${info.group}`
    this.neighbours.forEach((each, i) => {
      each.disabled = this.neighbour(i === 0 ? -1 : 1) === undefined
    })
    const facts = element('dl')
    const fact = (name: string, text: string) => facts.append(element('dt', {}, name), element('dd', {}, text))
    fact('from', info.allocatedAt < 0 ? 'before the recording' : `event ${formatCount(info.allocatedAt)}`)
    fact('to', info.freedAt < 0 ? 'held to the end' : `event ${formatCount(info.freedAt)}`)
    if (info.lifeUs !== null && page.info.spanUs > 0) fact('lived', formatUs(info.lifeUs))
    fact('size', `${formatCount(info.bytes)} bytes`)
    fact('stream', info.stream.replace('stream ', ''))
    if (info.pool !== '') fact('pool', info.pool)
    if (info.tag !== '') fact('tag', info.tag)
    for (const { label, text } of info.addresses) fact(label, text)
    const body = byId('block-body')
    const hadFocus = body.contains(document.activeElement)
    body.replaceChildren(facts, this.stack(info), this.historyList(info))
    if (hadFocus) body.querySelector<HTMLElement>('[aria-current]')?.focus({ preventScroll: true })
  }

  private stack(info: BlockInfo): HTMLElement {
    const part = element('div')
    const fill = () => {
      part.replaceChildren(element('p', { class: 'quiet' }, 'allocated by'), stackList(info.stack))
      if (info.stack.some(({ path }) => path !== null)) part.firstElementChild!.append(' ', choice)
    }
    const choice = editorChoice(fill)
    fill()
    if (info.stack.length > 0) return part
    return element('p', { class: 'quiet' }, info.allocatedAt < 0 ? NO_STACK_BEFORE : NO_STACK)
  }

  private historyList(info: BlockInfo): HTMLElement {
    const { history, page } = this
    if (history === null || history.total === 0) return element('div')
    const label = page.info.policies.find(({ policy }) => policy === page.state.maps[0])?.label ?? ''
    const list = element('ol', { class: 'history', 'aria-label': 'blocks that held this address' })
    for (const row of history.rows) {
      const isOwn = row.block === info.block
      const choose = button(lineText(row), () => this.select(row), isOwn ? { 'aria-current': 'true' } : {})
      list.append(element('li', {}, choose))
    }
    const count = history.total === 1 ? 'Only this block' : `${formatCount(history.total)} blocks`
    const some = history.rows.length < history.total ? `, of which ${formatCount(history.rows.length)} are listed` : ''
    const heading = `${count} held address 0x${history.address.toString(16)} (${label})${some}:`
    return element('div', {}, element('p', { class: 'quiet' }, heading), list)
  }

  /** Scrolls the list, and nothing around it, to the selected block. */
  private scrollToOwn(): void {
    const own = byId('block-body').querySelector<HTMLElement>('[aria-current]')
    const list = own?.closest('ol')
    if (own == null || list == null) return
    list.scrollTop = own.offsetTop - (list.clientHeight - own.offsetHeight) / 2
  }

  /** The block that held the listed address before or after it. */
  private neighbour(by: 1 | -1): BlockLine | undefined {
    const rows = this.history?.rows ?? []
    return rows[rows.findIndex(({ block }) => block === this.info?.block) + by]
  }

  private select(row: BlockLine | undefined): void {
    if (row === undefined) return
    if (this.walk !== null) this.walk.at = row.block
    this.page.update({ pinned: row.block })
  }

  private showLife(): void {
    const { page, info } = this
    if (info === null) return
    const [from, to] = [info.allocatedAt, info.freedAt < 0 ? page.info.events : info.freedAt].map(each => page.at(each))
    const margin = ((to - from) * (1 - LIFE_PART)) / 2
    page.zoom(from - margin, to + margin)
    byId('stacked').scrollIntoView({ block: 'start' })
  }
}

function lineText({ bytes, allocatedAt, freedAt, group }: BlockLine): string {
  const from = allocatedAt < 0 ? 'before' : formatCount(allocatedAt)
  return `${formatBytes(bytes)} from ${from} to ${freedAt < 0 ? 'the end' : formatCount(freedAt)} — ${group}`
}
