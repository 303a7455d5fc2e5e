// `cuda-mempool keep list`, `prune` and `drop`: the regions of a keeper, for people and programs.

import { formatBytes } from '../../core/base/bytes.js'
import { printable } from '../../core/base/shown-text.js'
import { KeeperClient } from '../../core/keeper/client.js'
import { keptMemory } from '../../core/keeper/kept-memory.js'
import type { RegionInfo } from '../../core/keeper/region.js'
import { unusedLine } from '../../recordings/report/device-text.js'
import { formatTime, TIME_UNITS } from '../../recordings/report/number-format.js'
import { type Column, rightColumn, tableText } from '../../recordings/report/table.js'
import { answer } from '../answers.js'
import { UsageError } from '../exit.js'
import { print, printJson } from '../terminal.js'

/** The options as text, from the command line. */
export interface KeepOptions {
  readonly socket?: string
  readonly json?: boolean
}

export interface PruneOptions extends KeepOptions {
  readonly unused?: string
  readonly unfinished?: boolean
  readonly name?: string
  readonly all?: boolean
}

export interface DropOptions extends KeepOptions {
  readonly force?: boolean
}

/** Prints the kept regions. */
export async function list({ json = false, ...options }: KeepOptions): Promise<void> {
  const regions = await asked(options, client => client.list())
  if (json) printJson(answer('keep', { regions }))
  else if (regions.length === 0) print('nothing is kept')
  else {
    const now = Date.now()
    const unused = unusedLine(keptMemory(regions, ''), now)
    print(style => [tableText(regions, columns(now), style), ...(unused === null ? [] : [`\n${unused}`])].join('\n'))
  }
}

/** Frees regions without readers, and prints them. */
export async function prune({ json = false, ...options }: PruneOptions): Promise<void> {
  const { unused, unfinished, name, all } = options
  if (unused === undefined && unfinished === undefined && name === undefined && all === undefined)
    throw new UsageError('prune: say what to free: --unused 1h, --unfinished, --name NAME or --all')
  if (name === '') throw new UsageError('prune: --name must name a region')
  const rule = {
    ...(unused !== undefined && { unusedMs: timeOf(unused) }),
    ...(unfinished !== undefined && { unfinished }),
    ...(name !== undefined && { name }),
    ...(all !== undefined && { all }),
  }
  const regions = await asked(options, client => client.prune(rule))
  if (json) return printJson(answer('keep', { regions }))
  const bytes = regions.reduce((sum, region) => sum + region.bytes, 0)
  print(
    regions.length === 0
      ? 'nothing was freed: no such region is without readers'
      : `freed ${formatBytes(bytes)}: ${names(regions)}`,
  )
}

/** Drops a region. */
export async function drop(name: string, { force = false, ...options }: DropOptions): Promise<void> {
  if (name === '') throw new UsageError('drop: the name of a region is empty; cuda-mempool keep list shows the names')
  await asked(options, client => client.drop(name, { force }))
  print(`dropped ${printable(name)}`)
}

async function asked<T>({ socket }: KeepOptions, ask: (client: KeeperClient) => Promise<T>): Promise<T> {
  if (socket === '') throw new UsageError('--socket must name a file')
  const client = await KeeperClient.open(socket === undefined ? {} : { path: socket })
  try {
    return await ask(client)
  } finally {
    client.close()
  }
}

function columns(now: number): Column<RegionInfo>[] {
  return [
    { title: 'name', align: 'left', cell: ({ name }) => printable(name) },
    { title: 'version', align: 'left', cell: ({ version }) => printable(version) },
    { title: 'state', align: 'left', cell: ({ state }) => state },
    rightColumn('size', ({ bytes }) => formatBytes(bytes)),
    rightColumn('last use', ({ lastUse }) => `${formatTime(now - lastUse)} ago`),
    { title: 'readers', align: 'left', cell: ({ readers }) => readers.join(' ') || 'none' },
    { title: 'writer', align: 'left', cell: ({ writer }) => String(writer) },
    { title: 'device', align: 'left', cell: ({ device }) => printable(device) },
  ]
}

function names(regions: readonly RegionInfo[]): string {
  return regions.map(({ name, state }) => printable(state === 'unfinished' ? `${name} (unfinished)` : name)).join(', ')
}

/** Milliseconds of a time such as `90s`, `30m`, `1h` or `2d`. */
function timeOf(text: string): number {
  const [, amount, unit] = /^(\d{1,6})([smhd])$/.exec(text) ?? []
  if (amount === undefined) throw new UsageError(`--unused must be a time like 90s, 30m, 1h or 2d, not '${text}'`)
  return Number(amount) * TIME_UNITS[unit as keyof typeof TIME_UNITS]
}
