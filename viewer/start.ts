// The start of the page: opens a recording, and connects state, views and the address bar.

import { themeOf } from '../src/recordings/picture/drawing/theme.js'
import type { PageData } from '../src/recordings/report/page/page-data.js'
import { stateOf } from './address-bar.js'
import { byId, element } from './elements.js'
import { Exports } from './exports/exports.js'
import { Page, type State } from './page.js'
import { keepAddress } from './view-history.js'
import { BlockDrawer } from './views/block.js'
import { Difference } from './views/difference.js'
import { EventList } from './views/event-list.js'
import { FailurePanel } from './views/failure.js'
import { Holders } from './views/holders.js'
import { NO_ZOOM } from './views/icicle.js'
import { Pictures } from './views/pictures.js'
import { RangeFigures } from './views/range-figures.js'
import { Ranks } from './views/ranks.js'
import { StepBars } from './views/steps.js'
import { Summary } from './views/summary.js'
import { Toolbar } from './views/toolbar.js'

const FIRST_MAPS = ['recorded', 'cuda-mempool']
/** The most lines to show at first, and those to show of more: the recorded one, ours, and PyTorch's own remedy. */
const [MOST_LINES, FIRST_LINES] = [4, [...FIRST_MAPS, 'pytorch-expandable']]

/** Shows the data that the page has in its element `data`, and its pictures beside. */
export async function start(): Promise<void> {
  try {
    await show(JSON.parse(byId('data').textContent ?? '') as PageData)
  } catch (error) {
    const text = error instanceof Error ? error.message : String(error)
    const problem = element('p', { class: 'problem', role: 'alert' }, `This page cannot be shown: ${text}`)
    byId('page').replaceChildren(problem)
  }
}

async function show(data: PageData): Promise<void> {
  const page = new Page(data)
  Object.assign(globalThis, { cudaMempoolPage: { idle: () => page.client.idle(), state: () => page.state } })
  const given = stateOf(location.hash)
  const index = Math.min(data.recordings.length - 1, given.recording ?? 0)
  await page.client.during(page.load(index))
  page.state = stateFor(page, index, given)
  page.open = async (to, given = {}) => {
    await page.client.during(page.load(to))
    page.state = stateFor(page, to, given)
    page.changed()
    page.askAll()
    page.draw()
  }
  followTheme(page)
  new Summary(page)
  new Ranks(page)
  if (data.difference !== undefined) new Difference(page, data.difference)
  new FailurePanel(page)
  const pictures = new Pictures(page)
  new StepBars(page)
  new Holders(page)
  new EventList(page)
  new RangeFigures(page)
  new BlockDrawer(page)
  new Toolbar(page)
  new Exports(page, pictures)
  keepAddress(page, given => stateFor(page, page.state.recording, given))
  pictures.showMaps()
  page.askAll()
  page.draw()
}

/** The first view of a recording, changed as the address says. */
function stateFor(page: Page, recording: number, given: Partial<State>): State {
  const { info, data } = page
  // A recording without times has no axis of them.
  const axis = info.spanUs === 0 ? 'event' : (given.axis ?? 'event')
  const end = axis === 'time' ? info.spanUs : info.events
  const known = info.policies.filter(({ hasMap }) => hasMap).map(({ policy }) => policy)
  const first = FIRST_MAPS.filter(policy => known.includes(policy))
  const more = known.filter(policy => !first.includes(policy))
  const maps = (given.maps ?? []).filter(policy => known.includes(policy))
  const failure = data.recordings[recording].failures.at(-1)
  const state: State = {
    cursor: failure?.event ?? info.peakEvent,
    only: [],
    without: [],
    group: null,
    find: '',
    a: null,
    b: null,
    question: 'at',
    step: 0,
    pinned: null,
    inverted: false,
    machinery: false,
    zoom: NO_ZOOM,
    listed: false,
    hidden: hiddenFirst(page),
    from: 0,
    to: end,
    ...given,
    grouping: info.groupings.find(each => each === given.grouping) ?? (info.hasStacks ? 'stack' : 'lifetime'),
    axis,
    recording,
    maps: maps.length > 0 ? maps : [...first, ...more].slice(0, 2),
  }
  state.cursor = Math.min(info.events - 1, state.cursor)
  for (const marker of ['a', 'b'] as const) if (Number(state[marker]) >= info.events) state[marker] = null
  if (!(state.to > state.from) || state.to > end) Object.assign(state, { from: 0, to: end })
  return state
}

/** The lines of a long list that wait for a click on their names. */
function hiddenFirst({ info }: Page): string[] {
  const names = info.policies.map(({ policy }) => policy)
  return names.length <= MOST_LINES ? [] : names.filter(policy => !FIRST_LINES.includes(policy))
}

/** Light or dark as the system has it, until the button says otherwise. */
function followTheme(page: Page): void {
  const system = matchMedia('(prefers-color-scheme: dark)')
  const apply = () => {
    const chosen = document.documentElement.dataset['theme']
    const isDark = chosen === undefined ? system.matches : chosen === 'dark'
    page.theme = themeOf(isDark, page.colours?.isScale ?? page.state.grouping === 'age')
    page.ask(new Set(['paint']))
    page.draw()
  }
  page.restyle = apply
  system.addEventListener('change', apply)
  byId('theme').addEventListener('click', () => {
    document.documentElement.dataset['theme'] = page.theme.isDark ? 'light' : 'dark'
    apply()
  })
  apply()
}
