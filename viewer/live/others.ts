// What the process has beside pools: shelves with their models, and the regions of a keeper.

import type { RegionFigures } from '../../src/live/kept-regions.js'
import { readersText, stateText, sumOf, timeAgo } from '../../src/live/others-text.js'
import type { ProcessStats } from '../../src/live/process-stats.js'
import type { ShelfFigures } from '../../src/live/watched-pools.js'
import { element } from '../elements.js'
import { formatBytes, formatCount } from '../text.js'

type Rows = readonly (readonly string[])[]

export class Others {
  readonly part = element('div', { class: 'others' })

  show({ shelves, regions, timeMs }: ProcessStats): void {
    const sections = shelves.map(shelf => shelfSection(shelf, timeMs))
    if (regions.length > 0) sections.push(regionSection(regions, timeMs))
    this.part.hidden = sections.length === 0
    this.part.replaceChildren(...sections)
  }
}

function shelfSection(shelf: ShelfFigures, timeMs: number): HTMLElement {
  const { name, budgetBytes, awakeBytes, waiting, switches, lastSwitchMs, models } = shelf
  const figures = [
    ['awake', `${formatBytes(awakeBytes)} of ${formatBytes(budgetBytes)}`],
    ['waiting', formatCount(waiting)],
    ['switches', formatCount(switches)],
    ['last switch', `${Math.round(lastSwitchMs)} ms`],
  ]
  const rows = models.map(({ name, state, bytes, running, lastUsedAt }) => {
    return [name, stateText(state), formatBytes(bytes), formatCount(running), timeAgo(lastUsedAt, timeMs)]
  })
  return section(`shelf ${name}`, figures, ['model', 'state', 'size', 'running', 'last use'], rows)
}

function regionSection(regions: readonly RegionFigures[], timeMs: number): HTMLElement {
  const { keptBytes, unusedBytes } = sumOf(regions)
  const figures = [
    ['in all', formatBytes(keptBytes)],
    ['without readers', formatBytes(unusedBytes)],
  ]
  const rows = regions.map(({ name, version, state, bytes, readers, lastUse, here }) => {
    return [name, version, state, formatBytes(bytes), readersText(readers), timeAgo(lastUse, timeMs), here ?? '–']
  })
  const titles = ['region', 'version', 'state', 'size', 'readers', 'last use', 'here']
  return section('kept regions', figures, titles, rows)
}

function section(title: string, figures: Rows, titles: readonly string[], rows: Rows): HTMLElement {
  const list = figures.map(([name, value]) => element('div', {}, element('dt', {}, name), element('dd', {}, value)))
  const head = element('tr', {}, ...titles.map(each => element('th', { scope: 'col' }, each)))
  const body = rows.map(([name, ...cells]) =>
    element('tr', {}, element('th', { scope: 'row' }, name), ...cells.map(cell => element('td', {}, cell))),
  )
  const table = element('table', {}, element('thead', {}, head), element('tbody', {}, ...body))
  const made = element('section', { 'aria-label': title }, element('h2', {}, title), element('dl', {}, ...list))
  if (rows.length > 0) made.append(table)
  return made
}
