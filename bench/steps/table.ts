// The figures of all variants as one table. Below it are failures, rows without a change, and steps without a row.

import { formatCount, MISSING } from '../../src/recordings/report/number-format.js'
import { type Column, PLAIN, rightColumn, tableText } from '../../src/recordings/report/table.js'
import { CAPACITIES, type Figures, PEAKS_AFTER } from './measure.js'

export interface Row {
  readonly name: string
  /** null if the variant failed */
  readonly figures: Figures | null
  /** why it failed */
  readonly reason: string | null
}

type Measured = Row & { readonly figures: Figures }

/** The first row is the policy as it is. */
export function stepsText(rows: readonly Row[], otherSteps: readonly string[], width: number): string {
  const measured = rows.filter(({ figures }) => figures !== null) as Measured[]
  const columns = measured.length === 0 ? [] : columnsOf(measured[0].figures)
  const [, ...figures] = columns
  const isLikeFirst = (row: Measured) => figures.every(({ cell }) => cell(row) === cell(measured[0]))
  const same = rows[0].figures === null ? [] : measured.slice(1).filter(isLikeFirst)
  return [
    ...(columns.length === 0 ? [] : [tableText(measured, columns, { width, paint: PLAIN }), '']),
    ...rows.flatMap(({ name, reason }) => (reason === null ? [] : [`${name} failed: ${reason}`])),
    `changes no figure: ${same.map(({ name }) => name).join(', ') || 'none'}`,
    `not measured, steps of other plans: ${otherSteps.join(', ')}`,
  ].join('\n')
}

function columnsOf({ mixes }: Figures): Column<Measured>[] {
  const column = (title: string, cell: (figures: Figures) => string) =>
    rightColumn<Measured>(title, ({ figures }) => cell(figures))
  return [
    { title: '', align: 'left', cell: ({ name }) => name },
    column('first\nms', ({ firstMs }) => firstMs.toFixed(1)),
    column('later\nms', ({ laterMs }) => laterMs.toFixed(1)),
    column('limited\nms', ({ limitedMs }) => limitedMs.toFixed(1)),
    ...PEAKS_AFTER.map((passes, index) => column(`peak\n${passes}`, ({ peaks }) => peaks[index].toFixed(3))),
    column('mean\nleast', ({ least }) => least?.toFixed(4) ?? MISSING),
    column('stream\nwaits', ({ streamWaits }) => formatCount(streamWaits)),
    column('host\nwaits', ({ hostWaits }) => formatCount(hostWaits)),
    ...['∞', ...CAPACITIES].map((limit, index) =>
      column(`failed\n${limit}`, ({ failed }) => formatCount(failed[index])),
    ),
    ...mixes.flatMap(({ name }, index) => [
      column(`${name}\nmisses`, figures => figures.mixes[index].misses.toFixed(1)),
      column(`${name}\npeak`, figures => figures.mixes[index].peak.toFixed(3)),
      column(`${name}\nms`, figures => figures.mixes[index].ms.toFixed(1)),
    ]),
    column('mixes\nfailed', figures => figures.mixes.reduce((sum, { failed }) => sum + failed, 0).toFixed(1)),
  ]
}
