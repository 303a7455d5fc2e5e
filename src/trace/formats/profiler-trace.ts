// Reads the memory events of torch.profiler from a trace in Chrome's format: prof.export_chrome_trace() with
// profile_memory=True. The call stack of an allocation is the slices of its thread around it: operators, and with
// with_stack=True functions of Python.

import { FormatError } from '../../base/errors.js'
import { marksOf } from '../columns/annotations.js'
import { isDictionary } from '../pytorch/data-checks.js'
import type { StackTable } from '../stack-table.js'
import type { Trace } from '../trace.js'
import { AddressEvents } from './address-events.js'
import { readChromeEvents } from './chrome-events.js'
import { EnclosingSlices } from './enclosing-slices.js'
import { chooseDevice, type FormatOptions } from './format-options.js'

const MEMORY = '[memory]'
const OUT_OF_MEMORY = '[OutOfMemory]'
const FRAMES = ['python_function', 'cpu_op']
/** Steps and parts that the program or an optimizer has named. */
const NAMED = 'user_annotation'
const PYTHON_FRAME = /^(.+)\((\d+)\): (.+)$/s
/** CUDA in PyTorch's numbers of kinds of devices. */
const CUDA = 1
/** Profilers give no stream. */
const STREAM = 0

interface MemoryEvent {
  readonly timeUs: number
  readonly thread: string
  readonly device: number
  readonly address: number
  /** negative for a free */
  readonly bytes: number
  readonly isFailure: boolean
  readonly reservedBytes: number
}

/** The trace of one device. Throws FormatError naming the first bad event. */
export function readProfilerTrace(bytes: Buffer, file: string, options: FormatOptions): Trace {
  const slices = new EnclosingSlices<string>()
  const memory: MemoryEvent[] = []
  const named: { name: string; startUs: number; endUs: number }[] = []
  let others = 0
  readChromeEvents(
    bytes,
    (event, number) => {
      const { name, cat, ts, dur } = event
      if (name === MEMORY || name === OUT_OF_MEMORY) {
        const read = memoryEvent(event, `traceEvents[${number}]`)
        if (read === null) others++
        else memory.push(read)
      } else if (typeof name === 'string' && isTime(ts) && isTime(dur)) {
        if (FRAMES.includes(cat as string)) slices.add(threadOf(event), ts, dur, name)
        else if (cat === NAMED) named.push({ name, startUs: ts, endUs: ts + dur })
      }
    },
    options.onBytes,
  )
  if (memory.length === 0) {
    throw new FormatError('holds no memory events of CUDA; record with torch.profiler.profile(profile_memory=True)')
  }
  const counts = new Map<number, number>()
  for (const { device } of memory) counts.set(device, (counts.get(device) ?? 0) + 1)
  const { device, otherDevices } = chooseDevice(counts, options)
  const chosen = memory.filter(each => each.device === device).sort((a, b) => a.timeUs - b.timeUs)
  const events = new AddressEvents()
  events.skipped = others
  slices.finish()
  const numberOf = stackNumbers(events.stacks)
  const from = chosen[0].timeUs
  let peakReservedBytes = 0
  for (const { timeUs, thread, address, bytes: size, isFailure, reservedBytes } of chosen) {
    const time = timeUs - from
    peakReservedBytes = Math.max(peakReservedBytes, reservedBytes)
    if (size < 0 && !isFailure) events.free(address, -size, STREAM, time)
    else {
      const stack = numberOf(slices.around(thread, timeUs))
      if (isFailure) events.fail(Math.abs(size), STREAM, time, stack)
      else events.allocate(address, size, STREAM, time, stack)
    }
  }
  return events.build({
    file,
    device,
    otherDevices,
    recorder: 'PyTorch',
    annotations: named.flatMap(({ name, startUs, endUs }) =>
      marksOf({ name, startUs: startUs - from, endUs: endUs - from }),
    ),
    ...(peakReservedBytes > 0 ? { peakReservedBytes } : {}),
  })
}

/** Null for memory of another kind of device. */
function memoryEvent(event: Record<string, unknown>, place: string): MemoryEvent | null {
  const { ts, args } = event
  if (!isTime(ts)) throw new FormatError(`${place}.ts must be a number of microseconds`)
  if (!isDictionary(args)) throw new FormatError(`${place}.args must be a dictionary`)
  const isFailure = event['name'] === OUT_OF_MEMORY
  const whole = (name: string, otherwise?: number): number => {
    const value = args[name] === undefined && otherwise !== undefined ? otherwise : Number(args[name])
    if (Number.isSafeInteger(value)) return value
    throw new FormatError(`${place}.args['${name}'] must be a whole number`)
  }
  if (whole('Device Type', 0) !== CUDA) return null
  return {
    timeUs: ts,
    thread: threadOf(event),
    device: Math.max(0, whole('Device Id', 0)),
    address: isFailure ? 0 : Math.max(0, whole('Addr')),
    bytes: whole('Bytes'),
    isFailure,
    reservedBytes: whole('Total Reserved', 0),
  }
}

/** Gives the number of a stack of names, outermost first. */
function stackNumbers(table: StackTable): (names: readonly string[]) => number {
  const entries = new Map<string, ReturnType<StackTable['entry']>>()
  const entryOf = (name: string) => {
    let entry = entries.get(name)
    if (entry === undefined) {
      const [, file, line, call] = PYTHON_FRAME.exec(name) ?? [name, '', '0', name]
      entry = table.entry(file, Number(line), call)
      entries.set(name, entry)
    }
    return entry
  }
  return names => table.number(names.map(entryOf).reverse())
}

function threadOf({ pid, tid }: Record<string, unknown>): string {
  return `${pid} ${tid}`
}

function isTime(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value)
}
