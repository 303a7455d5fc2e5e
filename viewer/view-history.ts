// The page's address follows the view. Each range that stays for a moment is an entry of the browser's history, so Back
// undoes a zoom.

import { hashOf, stateOf } from './address-bar.js'
import { byId } from './elements.js'
import type { Page, State } from './page.js'

/** The address is written a little later than the state: browsers refuse to write it for each step of a drag. */
const DELAY_MS = 250
const SHOWN_MS = 2000
/** Marks entries that the page made: of these, Back takes the range only, and leaves cursor, markers and search. */
const OWN = 'range'

/** `stateFor` completes a part of a state, for the recording that is shown. */
export function keepAddress(page: Page, stateFor: (given: Partial<State>) => State): void {
  let timer: ReturnType<typeof setTimeout> | undefined
  let range = rangeOf(page.state)
  history.replaceState(OWN, '')
  const write = () => {
    clearTimeout(timer)
    const now = rangeOf(page.state)
    history[now === range ? 'replaceState' : 'pushState'](OWN, '', `#${hashOf(page.state)}`)
    range = now
  }
  page.changed = () => {
    clearTimeout(timer)
    timer = setTimeout(write, DELAY_MS)
  }
  const goTo = async (given: Partial<State>, isOwn: boolean) => {
    if (given.recording !== page.state.recording && given.recording! < page.data.recordings.length) {
      await page.open(given.recording!, given)
    } else {
      const { axis, from, to, ...others } = stateFor(given)
      page.update(isOwn ? { axis, from, to } : { ...others, axis, from, to })
    }
    range = rangeOf(page.state)
  }
  addEventListener('popstate', ({ state }) => void page.client.during(goTo(stateOf(location.hash), state === OWN)))
  byId('link').addEventListener('click', () => {
    write()
    void page.client.during(copy(location.href))
  })
}

function rangeOf({ recording, axis, from, to }: State): string {
  return [recording, axis, from, to].join(' ')
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
