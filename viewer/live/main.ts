// The live page: the pools, shelves and kept regions of a running process. It asks only the server that it
// came from, and texts enter the page as text.

import type { PoolSnapshot } from '../../src/core/pool/caching/snapshot.js'
import { StreamNumbers } from '../../src/live/memory-parts.js'
import type { ProcessStats } from '../../src/live/process-stats.js'
import { byId } from '../elements.js'
import { formatCount } from '../text.js'
import { Others } from './others.js'
import { Overview } from './overview.js'
import { PoolCard } from './pool-card.js'

const SNAPSHOT_MS = 1000
const EVENTS_MS = 250
/** A process that sends no event for so long is silent. */
const SILENT_MS = 2000

const query = location.search
const at = (path: string, more = '') => `${path}${query}${more === '' ? '' : `${query === '' ? '?' : '&'}${more}`}`

const cards = new Map<string, PoolCard>()
const streams = new StreamNumbers()
/** Refused requests of the pools with any since the page was opened. */
const refused = new Map<string, number>()
const TITLE = document.title
const overview = new Overview()
const others = new Others()
let cardCount = 0
let isPaused = false

function showStats(stats: ProcessStats): void {
  byId('process').textContent = [
    `pid ${stats.pid}`,
    ...stats.devices.map(({ ordinal, name }) => `device ${ordinal}: ${name}`),
    stats.command,
  ].join(' · ')
  byId('state').textContent = stats.pools.length === 0 ? 'No pool is open now.' : ''
  for (const pool of stats.pools) {
    let card = cards.get(pool.name)
    if (card === undefined) {
      card = new PoolCard(pool.name, `pool-${++cardCount}`)
      cards.set(pool.name, card)
      byId('pools').append(card.section)
    }
    const more = card.show(pool, stats.timeMs)
    if (more > 0) refused.set(pool.name, (refused.get(pool.name) ?? 0) + more)
  }
  document.title = titleOf(refused)
  overview.show(stats.pools, name => cards.get(name)!.id)
  others.show(stats)
  for (const [name, card] of cards) {
    if (stats.pools.some(pool => pool.name === name)) continue
    card.section.remove()
    cards.delete(name)
  }
}

/** Names the pools that have run out of memory since the page was opened. */
function titleOf(refused: ReadonlyMap<string, number>): string {
  const counts = [...refused].map(([name, count]) => `${name} ${formatCount(count)}`)
  return counts.length === 0 ? TITLE : `Out of memory: ${counts.join(', ')} · ${TITLE}`
}

async function askSnapshots(): Promise<void> {
  if (!isPaused && !document.hidden) {
    try {
      const response = await fetch(at('/snapshot'))
      const { pools = [] } = (await response.json()) as { pools?: { name: string; snapshot: PoolSnapshot }[] }
      for (const { name, snapshot } of pools) {
        cards.get(name)?.showMap(snapshot)
        cards.get(name)?.showStreams(streams.bytesIn(snapshot))
      }
    } catch {
      // The process has ended; the events say so.
    }
  }
  setTimeout(askSnapshots, SNAPSHOT_MS)
}

let answeredMs = performance.now()
let isSilent = false

/** Says so if the process does not answer, and how long ago it did. */
function showSilence(isBroken: boolean): void {
  const ms = performance.now() - answeredMs
  const before = isSilent
  isSilent = isBroken || ms >= SILENT_MS
  document.body.classList.toggle('silent', isSilent)
  byId('age').textContent = isSilent ? `Last answer ${Math.floor(ms / 1000)} s ago.` : ''
  if (isSilent === before) return
  byId('state').textContent = isSilent
    ? 'The process does not answer: it is stopped, is busy, or has ended. The page goes on when it answers.'
    : ''
}

byId('pools').append(overview.section, others.part)
const events = new EventSource(at('/events', `ms=${EVENTS_MS}`))
events.onmessage = ({ data }) => {
  answeredMs = performance.now()
  showSilence(false)
  if (!isPaused) showStats(JSON.parse(data))
}
events.onerror = () => showSilence(true)
setInterval(() => showSilence(events.readyState !== EventSource.OPEN && isSilent), EVENTS_MS)
byId('pause').onclick = () => {
  isPaused = !isPaused
  byId('pause').setAttribute('aria-pressed', String(isPaused))
}
void askSnapshots()
