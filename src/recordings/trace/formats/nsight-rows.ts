// Reads the table of memory events that Nsight Systems exports, from rows of text with the names of its columns. Rows
// come from the database itself, or from a CSV file that sqlite3 wrote.

import { FormatError } from '../../../core/base/errors.js'
import type { Trace } from '../trace.js'
import { AddressEvents } from './address-events.js'
import { headerOf, readRows } from './csv-rows.js'
import { type ChosenDevice, chooseDevices, type DeviceChoice, type FormatOptions } from './format-options.js'

/** The table in the database. */
export const NSIGHT_TABLE = 'CUDA_GPU_MEMORY_USAGE_EVENTS'

const REQUIRED = ['start', 'address', 'bytes', 'memKind', 'memoryOperationType'] as const
/** Columns that older versions do not have. */
const OPTIONAL = ['globalPid', 'deviceId', 'streamId', 'localMemoryPoolAddress', 'localMemoryPoolSize'] as const
/** The columns that are read. */
export const NSIGHT_COLUMNS = [...REQUIRED, ...OPTIONAL]
type Column = (typeof NSIGHT_COLUMNS)[number]

/** Of the kinds of memory in Nsight's numbers: device, array, and static device memory. */
const DEVICE_KINDS = [2, 3, 5]
const ALLOCATE = 0
const FREE = 1

interface Row {
  readonly startNs: number
  readonly address: number
  readonly bytes: number
  readonly isFree: boolean
  readonly process: string
  readonly device: number
  readonly stream: number
  /** of the driver's pool that the memory is from; 0 for memory of no pool */
  readonly pool: number
  readonly poolBytes: number
}

/** Whether a file begins as a CSV file of the table. */
export function isNsightHeader(start: Buffer): boolean {
  const names = headerOf(start)
  return REQUIRED.every(name => names.includes(name))
}

/** The traces of a CSV file with the table. Throws FormatError naming the first bad line. */
export function readNsightCsv(bytes: Buffer, file: string, options: FormatOptions): Trace[] {
  const names = headerOf(bytes)
  const rows = new NsightRows(names)
  const cutShort = readRows(bytes, names.length, (fields, line) => rows.add(fields, `line ${line}`), options.onBytes)
  rows.skipped += cutShort
  return rows.traces(file, options.device)
}

export class NsightRows {
  /** rows that were left out */
  skipped = 0
  private readonly at: Readonly<Partial<Record<Column, number>>>
  private readonly rows: Row[] = []

  constructor(names: readonly string[]) {
    const known = NSIGHT_COLUMNS.filter(name => names.includes(name))
    const missing = REQUIRED.find(name => !known.includes(name))
    if (missing !== undefined) throw new FormatError(`the table ${NSIGHT_TABLE} has no column ${missing}`)
    this.at = Object.fromEntries(known.map(name => [name, names.indexOf(name)]))
  }

  /** Adds a row, as text. Throws FormatError naming `place`. */
  add(fields: readonly string[], place: string): void {
    const whole = (name: Column): number => {
      const at = this.at[name]
      const text = at === undefined ? '' : fields[at]
      if (text === '' && !isRequired(name)) return 0
      const value = /^-?\d+$/.test(text) ? Number(text) : NaN
      if (Number.isSafeInteger(value)) return value
      throw new FormatError(`${place}: ${name} must be a whole number, not '${text.slice(0, 40)}'`)
    }
    const operation = whole('memoryOperationType')
    if (!DEVICE_KINDS.includes(whole('memKind')) || (operation !== ALLOCATE && operation !== FREE)) {
      this.skipped++
      return
    }
    const [address, bytes] = [whole('address'), whole('bytes')]
    const [poolBytes, device] = [whole('localMemoryPoolSize'), whole('deviceId')]
    if (address < 0 || bytes < 0) throw new FormatError(`${place}: address and bytes must be 0 or above`)
    if (poolBytes < 0 || device < 0) {
      throw new FormatError(`${place}: localMemoryPoolSize and deviceId must be 0 or above`)
    }
    this.rows.push({
      startNs: whole('start'),
      address,
      bytes,
      isFree: operation === FREE,
      // Above 2^53, so it stays text.
      process: this.at.globalPid === undefined ? '' : fields[this.at.globalPid],
      device,
      stream: whole('streamId'),
      pool: whole('localMemoryPoolAddress'),
      poolBytes,
    })
  }

  /** The traces of the chosen devices, and there of the process with the most events. Throws FormatError. */
  traces(file: string, device: DeviceChoice): Trace[] {
    if (this.rows.length === 0) {
      throw new FormatError('holds no events of device memory; record with nsys profile --cuda-memory-usage=true')
    }
    const byDevice = groupedBy(this.rows, row => row.device)
    const counts = new Map([...byDevice].map(([number, rows]) => [number, rows.length]))
    return chooseDevices(counts, device).map(chosen => this.traceOf(byDevice.get(chosen.device)!, file, chosen))
  }

  private traceOf(ofDevice: readonly Row[], file: string, chosen: ChosenDevice): Trace {
    const processes = [...groupedBy(ofDevice, row => row.process).values()]
    const busiest = processes.reduce((best, each) => (each.length > best.length ? each : best))
    const rows = busiest.sort((a, b) => a.startNs - b.startNs)
    const events = new AddressEvents()
    events.skipped = this.skipped + ofDevice.length - rows.length
    for (const { isFree, address, bytes, stream, startNs } of rows) {
      const timeUs = (startNs - rows[0].startNs) / 1e3
      if (isFree) events.free(address, bytes, stream, timeUs)
      else events.allocate(address, bytes, stream, timeUs)
    }
    return events.build({ file, ...chosen, recorder: 'CUDA', peakReservedBytes: peakReserved(rows) })
  }
}

/** The most bytes of the driver's pools and of memory of no pool at once. */
function peakReserved(rows: readonly Row[]): number {
  const plain = new Set<number>()
  const pools = new Map<number, number>()
  let pooled = 0
  let change = 0
  let most = 0
  let before = 0
  for (const { isFree, address, bytes, pool, poolBytes } of rows) {
    if (pool !== 0) {
      pooled += poolBytes - (pools.get(pool) ?? 0)
      pools.set(pool, poolBytes)
    } else if (!isFree) {
      plain.add(address)
      change += bytes
    } else {
      change -= bytes
      if (!plain.delete(address)) before += bytes
    }
    most = Math.max(most, pooled + change)
  }
  return before + most
}

function groupedBy<Key>(rows: readonly Row[], keyOf: (row: Row) => Key): Map<Key, Row[]> {
  const groups = new Map<Key, Row[]>()
  for (const row of rows) {
    const group = groups.get(keyOf(row))
    if (group === undefined) groups.set(keyOf(row), [row])
    else group.push(row)
  }
  return groups
}

function isRequired(name: Column): boolean {
  return (REQUIRED as readonly string[]).includes(name)
}
