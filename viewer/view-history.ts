// The page's address follows the view. Each range, filter and call of the icicle that stays for a moment is an entry of
// the browser's history, so Back undoes a zoom or a filter.

import { hashOf, stateOf } from './address-bar.js'
import { byId } from './elements.js'
import type { Page, State } from './page.js'

/** The address is written a little later than the state: browsers refuse to write it for each step of a drag. */
const DELAY_MS = 250
const SHOWN_MS = 2000
/** Marks entries that the page made: of these, Back takes `PARTS` only, and leaves cursor, markers and lines. */
const OWN = 'own'
const PARTS = [
  ...(['axis', 'from', 'to'] as const),
  ...(['grouping', 'only', 'without', 'group', 'find'] as const),
  ...(['inverted', 'machinery', 'zoom'] as const),
] as const satisfies readonly (keyof State)[]

/** `stateFor` completes a part of a state, for the recording that is shown. */
export function keepAddress(page: Page, stateFor: (given: Partial<State>) => State): void {
  let timer: ReturnType<typeof setTimeout> | undefined
  let entry = entryOf(page.state)
  history.replaceState(OWN, '')
  const write = () => {
    clearTimeout(timer)
    const now = entryOf(page.state)
    history[now === entry ? 'replaceState' : 'pushState'](OWN, '', `#${hashOf(page.state)}`)
    entry = now
  }
  page.changed = () => {
    clearTimeout(timer)
    timer = setTimeout(write, DELAY_MS)
  }
  const goTo = async (given: Partial<State>, isOwn: boolean) => {
    if (given.recording !== page.state.recording && given.recording! < page.data.recordings.length) {
      await page.open(given.recording!, given)
    } else {
      const view = stateFor(given)
      page.update(isOwn ? changesOf(page.state, view) : view)
      // The view leaves the field alone that has the focus.
      byId<HTMLInputElement>('find').value = view.find
    }
    entry = entryOf(page.state)
  }
  addEventListener('popstate', ({ state }) => void page.client.during(goTo(stateOf(location.hash), state === OWN)))
  byId('link').addEventListener('click', () => {
    write()
    void page.client.during(copy(location.href))
  })
}

/** Equal for states that share an entry. A search has one, however many letters are typed. */
function entryOf(state: State): string {
  const parts = PARTS.map(name => (name === 'find' ? state.find !== '' : state[name]))
  return JSON.stringify([state.recording, ...parts])
}

/** The parts of an entry that differ: the others need not be drawn anew. */
function changesOf(state: State, view: State): Partial<State> {
  const changed = PARTS.filter(name => JSON.stringify(state[name]) !== JSON.stringify(view[name]))
  return Object.fromEntries(changed.map(name => [name, view[name]]))
}

async function copy(text: string): Promise<void> {
  const link = byId('link')
  const name = link.textContent
  try {
    await navigator.clipboard.writeText(text)
    link.textContent = byId('said').textContent = 'copied'
  } catch {
    // Without a clipboard, as in pages from other computers.
    link.textContent = byId('said').textContent = 'it is in the address bar'
  }
  setTimeout(() => {
    link.textContent = name
  }, SHOWN_MS)
}
