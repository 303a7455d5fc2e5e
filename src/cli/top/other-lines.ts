// What `top` shows beside pools: shelves with their models, and the regions of a keeper.

import { printable } from '../../core/base/shown-text.js'
import type { RegionFigures } from '../../live/kept-regions.js'
import { readersText, stateText, sumOf, timeAgo } from '../../live/others-text.js'
import type { ProcessStats } from '../../live/process-stats.js'
import type { ShelfFigures } from '../../live/watched-pools.js'
import { formatCount, MISSING } from '../../recordings/report/number-format.js'
import { type Column, PLAIN, rightColumn, tableText } from '../../recordings/report/table.js'
import { shortBytes } from './pool-lines.js'
import { flow, type Line, span } from './styled-lines.js'

type Model = ShelfFigures['models'][number]

/** A table for each shelf, and one for the kept regions; empty without them. */
export function otherLines({ shelves, regions, timeMs }: ProcessStats, width: number): Line[] {
  const ofShelves = shelves.flatMap(shelf => [[], ...shelfLines(shelf, timeMs, width)])
  return regions.length === 0 ? ofShelves : [...ofShelves, [], ...regionLines(regions, timeMs, width)]
}

function shelfLines(shelf: ShelfFigures, timeMs: number, width: number): Line[] {
  const { name, device, budgetBytes, awakeBytes, waiting, switches, lastSwitchMs, models } = shelf
  const columns: Column<Model>[] = [
    { title: 'model', align: 'left', cell: model => printable(model.name) },
    { title: 'state', align: 'left', cell: ({ state }) => stateText(state) },
    rightColumn('size', ({ bytes }) => shortBytes(bytes)),
    rightColumn('running', ({ running }) => formatCount(running)),
    rightColumn('last use', ({ lastUsedAt }) => timeAgo(lastUsedAt, timeMs)),
  ]
  const head = [
    span(`shelf ${name}`, 'strong'),
    span(`device ${device}`),
    span(`awake ${shortBytes(awakeBytes)} of ${shortBytes(budgetBytes)}`),
    span(`waiting ${formatCount(waiting)}`, waiting > 0 ? 'pending' : 'plain'),
    span(`switches ${formatCount(switches)}`),
    ...(switches === 0 ? [] : [span(`the last took ${Math.round(lastSwitchMs)} ms`)]),
  ]
  return [...flow(head, width), ...(models.length === 0 ? [] : tableLines(models, columns, width))]
}

function regionLines(regions: readonly RegionFigures[], timeMs: number, width: number): Line[] {
  const { keptBytes, unusedBytes } = sumOf(regions)
  const columns: Column<RegionFigures>[] = [
    { title: 'region', align: 'left', cell: ({ name }) => printable(name) },
    { title: 'version', align: 'left', cell: ({ version }) => printable(version) },
    { title: 'state', align: 'left', cell: ({ state }) => state },
    rightColumn('size', ({ bytes }) => shortBytes(bytes)),
    rightColumn('readers', ({ readers }) => readersText(readers)),
    rightColumn('last use', ({ lastUse }) => timeAgo(lastUse, timeMs)),
    { title: 'here', align: 'left', cell: ({ here }) => here ?? MISSING },
  ]
  const head = [
    span('kept regions', 'strong'),
    span(shortBytes(keptBytes)),
    ...(unusedBytes === 0 ? [] : [span(`without readers ${shortBytes(unusedBytes)}`, 'pending')]),
  ]
  return [...flow(head, width), ...tableLines(regions, columns, width)]
}

function tableLines<Row>(rows: readonly Row[], columns: readonly Column<Row>[], width: number): Line[] {
  const text = tableText(rows, columns, { width, paint: PLAIN })
  return text.split('\n').map(line => [span(line)])
}
