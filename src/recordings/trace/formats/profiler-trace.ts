// Reads the memory events of torch.profiler from a trace in Chrome's format: prof.export_chrome_trace() with
// profile_memory=True. The call stack of an allocation is the slices of its thread around it: operators, and with
// with_stack=True functions of Python.

import { FormatError } from '../../../core/base/errors.js'
import { marksOf } from '../columns/annotations.js'
import { isDictionary, isTimeUs } from '../pytorch/data-checks.js'
import type { StackTable } from '../stack-table.js'
import type { Annotation, Trace } from '../trace.js'
import { AddressEvents } from './address-events.js'
import { readChromeEvents } from './chrome-events.js'
import { EnclosingSlices } from './enclosing-slices.js'
import { type ChosenDevice, chooseDevices, type DeviceFailures, type FormatOptions } from './format-options.js'

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

/** A part of the program's run, in microseconds of the file. */
type NamedPart = Pick<Annotation, 'name' | 'startUs' | 'endUs'>

/** The traces of the chosen devices. Throws FormatError naming the first bad event. */
export function readProfilerTrace(bytes: Buffer, file: string, options: FormatOptions): Trace[] {
  const slices = new EnclosingSlices<string>()
  const memory: MemoryEvent[] = []
  const named: NamedPart[] = []
  let others = 0
  readChromeEvents(
    bytes,
    (event, number) => {
      const { name, cat, ts, dur } = event
      if (name === MEMORY || name === OUT_OF_MEMORY) {
        const read = memoryEvent(event, `traceEvents[${number}]`)
        if (read === null) others++
        else memory.push(read)
      } else if (typeof name === 'string' && isTimeUs(ts) && isTimeUs(dur)) {
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
  const failures = new Map<number, DeviceFailures>()
  for (const { device, isFailure, timeUs } of memory) {
    counts.set(device, (counts.get(device) ?? 0) + 1)
    if (!isFailure) continue
    const { count, firstUs } = failures.get(device) ?? { count: 0, firstUs: Infinity }
    failures.set(device, { count: count + 1, firstUs: Math.min(firstUs, timeUs) })
  }
  const chosen = chooseDevices(counts, options.device, failures)
  const ofDevice = new Map(chosen.map(({ device }) => [device, new DeviceEvents(others)]))
  slices.finish()
  // The slices around a moment are found for rising times, so the events of all devices are in one order.
  for (const event of memory.sort((a, b) => a.timeUs - b.timeUs)) ofDevice.get(event.device)?.add(event, slices)
  return chosen.map(each => ofDevice.get(each.device)!.trace(file, each, named))
}

/** The events of one device. */
class DeviceEvents {
  private readonly events = new AddressEvents()
  private readonly numberOf = stackNumbers(this.events.stacks)
  private fromUs = Number.NaN
  private peakReservedBytes = 0

  /** `skipped` are events of the file that belong to no GPU. */
  constructor(skipped: number) {
    this.events.skipped = skipped
  }

  /** Adds the next event in the order of time. */
  add(
    { timeUs, thread, address, bytes, isFailure, reservedBytes }: MemoryEvent,
    slices: EnclosingSlices<string>,
  ): void {
    if (Number.isNaN(this.fromUs)) this.fromUs = timeUs
    const time = timeUs - this.fromUs
    this.peakReservedBytes = Math.max(this.peakReservedBytes, reservedBytes)
    if (bytes < 0 && !isFailure) this.events.free(address, -bytes, STREAM, time)
    else {
      const stack = this.numberOf(slices.around(thread, timeUs))
      if (isFailure) this.events.fail(Math.abs(bytes), STREAM, time, stack)
      else this.events.allocate(address, bytes, STREAM, time, stack)
    }
  }

  trace(file: string, chosen: ChosenDevice, named: readonly NamedPart[]): Trace {
    const { fromUs, peakReservedBytes } = this
    return this.events.build({
      file,
      ...chosen,
      recorder: 'PyTorch',
      annotations: named.flatMap(({ name, startUs, endUs }) =>
        marksOf({ name, startUs: startUs - fromUs, endUs: endUs - fromUs }),
      ),
      ...(peakReservedBytes > 0 ? { peakReservedBytes } : {}),
    })
  }
}

/** Null for memory of another kind of device. */
function memoryEvent(event: Record<string, unknown>, place: string): MemoryEvent | null {
  const { ts, args } = event
  if (!isTimeUs(ts)) throw new FormatError(`${place}.ts must be a number of microseconds below 2^53`)
  if (!isDictionary(args)) throw new FormatError(`${place}.args must be a dictionary`)
  const isFailure = event['name'] === OUT_OF_MEMORY
  const whole = (name: string, otherwise?: number): number => {
    const value = args[name] ?? otherwise
    // Some versions write numbers as text.
    const number = typeof value === 'string' && value.trim() !== '' ? Number(value) : value
    if (Number.isSafeInteger(number)) return number as number
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

/** The thread of an event. Only numbers and texts tell processes and threads apart. */
function threadOf({ pid, tid }: Record<string, unknown>): string {
  return `${idOf(pid)} ${idOf(tid)}`
}

function idOf(value: unknown): string | number {
  return typeof value === 'string' || typeof value === 'number' ? value : ''
}
