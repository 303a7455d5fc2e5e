// The verdict, and the policies beside each other.

import { fileName } from '../../src/core/base/shown-text.js'
import { policyColour } from '../../src/recordings/picture/drawing/theme.js'
import type { PagePolicy } from '../../src/recordings/report/page/page-data.js'
import { button, byId, element, lineSample, sizeList } from '../elements.js'
import type { Page, ViewPart } from '../page.js'
import { formatBytes, formatCount } from '../text.js'

const MAIN: readonly string[] = ['recorded', 'cuda-mempool']

const RANGE = 'drag for a range; everything below shows it; with Shift, its figures'

export class Summary implements ViewPart {
  private shown = ''

  constructor(private readonly page: Page) {
    page.views.push(this)
  }

  show(): void {
    const { page } = this
    const { recording, hidden } = page.state
    const now = `${recording} ${hidden.join()} ${page.theme.isDark}`
    if (now === this.shown) return
    this.shown = now
    const { verdict, held, facts, notes, outside, file, device } = page.recording
    byId('file').textContent = fileName(file)
    // A tab that names the file is enough.
    byId('file').parentElement!.hidden =
      page.data.recordings.length > 1 && page.recording.tab.startsWith(fileName(file))
    byId('file').title = file
    byId('device').textContent = device
    const lines = page.info.policies.filter(({ policy }) => hidden.includes(policy)).length
    byId('curves-text').textContent = lines === 0 ? RANGE : `${RANGE}; ${hiddenText(lines)}`
    // Below what changed between two recordings it is the verdict on one of them.
    const which = page.data.difference === undefined ? '' : `${'AB'[recording]}: `
    byId('verdict').replaceChildren(...verdict.map((line, i) => element('span', {}, i === 0 ? which + line : line)))
    byId('held').replaceChildren(
      ...(held === null
        ? []
        : [element('p', {}, held.title), sizeList(held.rows.map(({ bytes, text }) => [formatBytes(bytes), text]))]),
    )
    byId('facts').textContent = facts
    byId('notes').replaceChildren(...notes.map(text => element('li', {}, text)))
    byId('outside').replaceChildren(...outside.lines.map(line => element('p', { class: 'quiet' }, line)))
    // A section without figures belongs to the end.
    byId(outside.isKnown ? 'failure' : 'events-section').after(byId('outside-section'))
    this.showPolicies()
  }

  private showPolicies(): void {
    const { page } = this
    const { columns, policies, leastBytes } = page.recording
    const most = Math.max(leastBytes, ...policies.map(({ peakBytes }) => peakBytes ?? 0))
    const titles = columns.map(({ title, tip }) => element('th', { title: tip }, title))
    const head = element('tr', {}, element('td'), element('td'), ...titles)
    const rows = policies.map(each => this.policyRow(each, most))
    byId('policies').querySelector('caption')!.textContent = columns
      .map(({ title, tip }) => `${title}: ${tip}`)
      .join('; ')
    for (const part of byId('policies').querySelectorAll('thead, tbody')) part.remove()
    byId('policies').append(element('thead', {}, head), element('tbody', {}, ...rows))
  }

  private policyRow(policy: PagePolicy, most: number): HTMLElement {
    const { page } = this
    const { hidden } = page.state
    const isShown = !hidden.includes(policy.policy)
    const name = button(
      policy.label,
      () => {
        const others = hidden.filter(each => each !== policy.policy)
        page.update({ hidden: isShown ? [...others, policy.policy] : others })
      },
      { 'aria-pressed': String(isShown), title: 'show or hide its curve' },
    )
    name.prepend(lineSample(policy.policy, page.theme), element('b', {}, String(page.numberOf(policy.policy))))
    const bar = element('i')
    bar.style.width = `${((policy.peakBytes ?? 0) / most) * 100}%`
    bar.style.background = policyColour(policy.policy, page.theme)
    const least = element('b')
    least.style.left = `${(page.recording.leastBytes / most) * 100}%`
    return element(
      'tr',
      MAIN.includes(policy.policy) ? { class: 'main' } : {},
      element('td', {}, name),
      element('td', {}, element('span', { class: 'track', 'aria-hidden': 'true' }, bar, least)),
      ...policy.cells.map(text => element('td', {}, text)),
    )
  }
}

function hiddenText(lines: number): string {
  return `${lines === 1 ? 'one line is hidden' : `${formatCount(lines)} lines are hidden`}: click a name in the table`
}
