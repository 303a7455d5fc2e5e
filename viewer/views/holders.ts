// The holders of a set of blocks: the icicle of call stacks, and the table of groups.

import { Cell } from '../../src/recordings/picture/cells.js'
import { tint } from '../../src/recordings/picture/drawing/theme.js'
import { QUESTIONS } from '../../src/recordings/picture/questions.js'
import { byId, element, swatch } from '../elements.js'
import type { Page, State, ViewPart } from '../page.js'
import type { HoldersAnswer } from '../protocol.js'
import { formatBytes, formatCount, formatShare, formatUs } from '../text.js'
import { ChoiceTable } from './choice-table.js'
import { IcicleView, NO_ZOOM, type Zoom } from './icicle.js'

type HeldBox = HoldersAnswer['icicle']['boxes'][number]

export class Holders implements ViewPart {
  private shown: HoldersAnswer | null = null
  private wasDark = false
  private zoom: Zoom = NO_ZOOM
  private readonly icicle: IcicleView<HeldBox>
  private readonly table: ChoiceTable

  constructor(private readonly page: Page) {
    page.views.push(this)
    this.table = new ChoiceTable(byId('groups'), key => {
      page.update({ group: page.state.group === Number(key) ? null : Number(key) })
    })
    const { update } = { update: page.update.bind(page) }
    this.icicle = new IcicleView(byId('icicle'), 'Call stacks', zoom => update({ zoom }))
    byId('to-peak').addEventListener('click', () => page.moveCursor(page.info.peakEvent))
    byId('mark-a').addEventListener('click', () => update({ a: page.state.cursor }))
    byId('mark-b').addEventListener('click', () => update({ b: page.state.cursor }))
    byId('mark-range').addEventListener('click', () => page.mark(page.state.from, page.state.to))
    byId('invert').addEventListener('click', () => update({ inverted: !page.state.inverted, zoom: NO_ZOOM }))
    byId('machinery').addEventListener('click', () => update({ machinery: !page.state.machinery }))
    const question = byId<HTMLSelectElement>('question')
    question.append(new Option('held at the cursor', 'at'))
    for (const [name, text] of Object.entries(QUESTIONS)) question.append(new Option(text, name))
    question.addEventListener('change', () => update({ question: question.value as State['question'] }))
  }

  show(): void {
    const { page } = this
    const { holders, state, info } = page
    byId('invert').setAttribute('aria-pressed', String(state.inverted))
    byId('machinery').setAttribute('aria-pressed', String(state.machinery))
    byId('invert').hidden = byId('machinery').hidden = !info.hasStacks
    byId('question-label').hidden = state.a === null || state.b === null
    byId<HTMLSelectElement>('question').value = state.question === 'step' ? 'at' : state.question
    if (holders === null) return
    // Before the icicle is drawn: it measures its width.
    const nothing = this.nothing(holders)
    byId('holders-none').textContent = nothing
    byId('holders-none').hidden = nothing === ''
    byId('icicle').hidden = byId('groups').parentElement!.hidden = nothing !== ''
    const isNew = holders !== this.shown || this.wasDark !== page.theme.isDark
    // Boxes in detail are those of one path: other paths wait for theirs.
    const isThere = holders.under.every((key, i) => key === state.zoom.path[i])
    if (isThere && (isNew || state.zoom !== this.zoom)) {
      this.zoom = state.zoom
      this.showIcicle(holders)
    }
    if (!isNew) return
    this.shown = holders
    this.wasDark = page.theme.isDark
    const title = this.title(holders)
    byId('holders-title').textContent = title
    const held = heldText(page)
    byId('said').textContent = held === '' ? title : `event ${formatCount(state.cursor)}: ${held}`
    this.showTable(holders)
  }

  /** Why there is no block to show; empty with one. */
  private nothing({ blocks, allBytes }: HoldersAnswer): string {
    if (blocks > 0) return ''
    const found = this.page.colours?.found ?? null
    if (found === 0) return 'Nothing is found: no block matches the search and the filter. Esc undoes them.'
    if (found === null || allBytes === 0) return 'There is no such block.'
    return found === 1
      ? 'The block found is not among them.'
      : `None of the ${formatCount(found)} blocks found is among them.`
  }

  private title({ bytes, allBytes, blocks }: HoldersAnswer): string {
    const { state, info, colours } = this.page
    const found = colours?.found == null ? '' : ` found, of ${formatBytes(allBytes)}`
    const sum = `${formatBytes(bytes)} in ${formatCount(blocks)} ${blocks === 1 ? 'block' : 'blocks'}${found}`
    if (state.question === 'step') return `Left behind by step ${formatCount(state.step + 1)}: ${sum}`
    if (state.question !== 'at' && state.a !== null && state.b !== null) {
      const text = QUESTIONS[state.question]
      return `${text[0].toUpperCase()}${text.slice(1)}: ${sum}`
    }
    const where = state.cursor === info.peakEvent ? 'the peak, ' : ''
    const time = info.spanUs > 0 ? ` (${formatUs(info.timeUs[state.cursor] ?? 0)})` : ''
    return `Who holds it at ${where}event ${formatCount(state.cursor)}${time}: ${sum}`
  }

  private showIcicle({ icicle, bytes }: HoldersAnswer): void {
    const { theme } = this.page
    this.icicle.draw(icicle, this.zoom, ({ calls: [call] }) => ({
      bytes: formatBytes(call.bytes),
      lines: [
        `${formatShare(call.bytes / bytes)} of what is held, in ${formatCount(call.blocks)} ${call.blocks === 1 ? 'block' : 'blocks'}`,
      ],
      background: tint(call.depth === 0 ? Cell.rest : call.cell, theme),
    }))
  }

  private showTable({ rows, bytes, groups }: HoldersAnswer): void {
    const { state, theme } = this.page
    const hasBefore = state.question === 'at' && state.a !== null
    const names = [nameOf(state.grouping), 'bytes', 'share', 'blocks', ...(hasBefore ? ['since A'] : [])]
    const shown = rows.map(row => {
      const cells = [
        formatBytes(row.bytes),
        bytes === 0 ? '–' : formatShare(row.bytes / bytes),
        formatCount(row.blocks),
      ]
      if (hasBefore) cells.push(`${row.grown > 0 ? '+' : row.grown < 0 ? '−' : ''}${formatBytes(Math.abs(row.grown))}`)
      const label = [swatch(theme, row.cell), element('span', {}, row.label)]
      return { key: String(row.group), label, title: 'show only these', cells }
    })
    const more = groups - rows.length
    this.table.show(
      names,
      shown,
      [String(state.group)],
      more === 0 ? null : `and ${formatCount(more)} more ${more === 1 ? 'group' : 'groups'}`,
    )
  }
}

/** The bytes held at the cursor, and who holds most; empty while they are not known. */
export function heldText({ holders, heldAt, state, colours }: Page): string {
  if (holders === null || heldAt !== state.cursor) return ''
  const { bytes, allBytes, rows } = holders
  const found = colours?.found == null ? '' : `, ${formatBytes(bytes)} of it found`
  const most = rows[0] === undefined ? 'nothing is held' : `most: ${rows[0].label}, ${formatBytes(rows[0].bytes)}`
  return `${formatBytes(allBytes)} in use${found}; ${most}`
}

/** The heading of the column of groups. */
function nameOf(grouping: State['grouping']): string {
  const names: Partial<Record<State['grouping'], string>> = {
    stack: 'call site',
    lifetime: 'how long the blocks live',
    age: 'when they were allocated',
  }
  return names[grouping] ?? grouping
}
