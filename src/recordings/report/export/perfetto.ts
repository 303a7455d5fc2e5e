// Traces for Perfetto: the messages of its protos/perfetto/trace. Curves are counter tracks; long or large things are
// slices.

import { formatBytes, MiB } from '../../../core/base/bytes.js'
import { SortedList } from '../../../core/base/sorted-list.js'
import { inUseOf, liveAfter } from '../../trace/analysis/curves.js'
import { memoryAt } from '../../trace/failures/memory-at.js'
import { takenBytes } from '../../trace/failures/taken-bytes.js'
import { CallSites } from '../../trace/frames/call-sites.js'
import { shortSite } from '../../trace/frames/short-path.js'
import { ReservedSegments } from '../../trace/reserved-segments.js'
import { Action, BEFORE, checkTrace, type Trace } from '../../trace/trace.js'
import { checkedPolicies, type PolicyMemory } from './policy-memory.js'
import { ProtobufMessage } from './protobuf.js'

/** Numbers of fields and of enumerations in Perfetto's messages. */
const TRACE = { packet: 1 }
const PACKET = { timestamp: 8, sequence: 10, trackEvent: 11, trackDescriptor: 60 }
const TRACK = { uuid: 1, name: 2, parent: 5, counter: 8 }
const COUNTER = { unit: 3 }
const UNIT_BYTES = 3
const EVENT = { debugAnnotation: 4, type: 9, track: 11, name: 23, counterValue: 30 }
const ANNOTATION = { name: 10, text: 6 }
const TYPE = { begin: 1, end: 2, instant: 3, counter: 4 }

const SEQUENCE = 1
/** Slices that overlap need a track each, so that only these allocations become slices. */
const LEAST_SLICE_BYTES = 16 * MiB
const MOST_SITES = 8
/** The largest idle piece is found at about this many events, and failed requests: each search visits all blocks. */
const IDLE_SAMPLES = 400
const ROOT = 1
const NS_PER_US = 1000

/**
 * A trace for Perfetto's viewer (ui.perfetto.dev, which works offline), in pieces of bytes: curves of the bytes in use,
 * of the reserved bytes of each policy, of the largest idle piece at some 400 events and at the first 400 failed
 * requests, and of the eight places that held most at the peak; annotations; failed requests; and allocations from
 * 16 MiB on. In a recording without times an event takes a microsecond. Without `policies` it has what was reserved in
 * the recording. Throws TypeError for wrong arguments.
 */
export function perfettoTrace(trace: Trace, policies?: readonly PolicyMemory[]): Generator<Buffer> {
  checkTrace('perfettoTrace', trace)
  return piecesOf(trace, checkedPolicies('perfettoTrace', trace, policies))
}

function* piecesOf(trace: Trace, policies: readonly PolicyMemory[]): Generator<Buffer> {
  const writer = new PerfettoWriter()
  const timeOf = clockOf(trace)
  writer.track(ROOT, `${trace.file}: device ${trace.device}`)
  const inUse = writer.counter('in use')
  const reserved = policies
    .filter(({ reservedBytes }) => reservedBytes !== null)
    .map(({ policy, reservedBytes }) => ({ curve: reservedBytes!, counter: writer.counter(`reserved: ${policy}`) }))
  const sites = new SiteCounters(trace, writer)
  const idle = new IdleCounter(trace, writer)
  const failures = writer.newTrack('out of memory')
  annotate(trace, writer)
  const lanes = new Lanes(writer, 'allocations from 16 MiB on')
  const { blocks, action, block, bytes } = trace
  for (let number = 0; number < blocks.initial; number++) {
    if (blocks.freeRequestedAt[number] === BEFORE) continue
    inUse.add(0, blocks.bytes[number])
    sites.add(0, number, blocks.bytes[number])
  }
  for (let event = 0; event < trace.events; event++) {
    const time = timeOf(event)
    for (const { counter, curve } of reserved) counter.set(time, curve[event])
    idle.sample(time, event)
    const number = block[event]
    if (action[event] === Action.alloc) {
      inUse.add(time, blocks.bytes[number])
      sites.add(time, number, blocks.bytes[number])
      if (blocks.bytes[number] >= LEAST_SLICE_BYTES) lanes.begin(time, number, nameOf(trace, number))
    } else if (action[event] === Action.freeRequested) {
      inUse.add(time, -blocks.bytes[number])
      sites.add(time, number, -blocks.bytes[number])
      lanes.end(time, number)
    } else if (action[event] === Action.outOfMemory) {
      const site = siteOf(trace, trace.stack[event])
      writer.event(TYPE.instant, failures, time, `asked for ${formatBytes(bytes[event])}`, site)
    }
    if (writer.isFull) yield writer.take()
  }
  lanes.endAll(trace.events === 0 ? 0 : timeOf(trace.events - 1))
  yield writer.take()
}

function siteOf({ stacks }: Trace, stack: number): string | null {
  const { site } = CallSites.of(stacks).siteOf(stack)
  return site === null ? null : shortSite(site)
}

function nameOf(trace: Trace, number: number): string {
  const { blocks } = trace
  const site = siteOf(trace, blocks.stack[number])
  return `${formatBytes(blocks.bytes[number])}${site === null ? '' : ` ${site}`}`
}

/** Writes the annotations as slices: those of one name but for its number, such as steps, on one track. */
function annotate({ annotations, timeUs, events, spanSeconds }: Trace, writer: PerfettoWriter): void {
  const latestUs = timeUs.reduce((latest, us) => Math.max(latest, us), timeUs[0])
  const lastNs = (spanSeconds === 0 ? events : latestUs - timeUs[0]) * NS_PER_US
  const timeOf = (us: number, event: number, unknownNs: number) => {
    const time = spanSeconds === 0 ? event * NS_PER_US : (us - timeUs[0]) * NS_PER_US
    return Math.round(Math.min(lastNs, Math.max(0, Number.isNaN(time) ? unknownNs : time)))
  }
  const marks = annotations.flatMap(({ name, startUs, endUs, start, end }, slice) => [
    { time: timeOf(startUs, start, 0), isStart: true, name, slice },
    { time: timeOf(endUs, end, lastNs), isStart: false, name, slice },
  ])
  const groups = new Map<string, Lanes>()
  for (const { time, isStart, name, slice } of marks.sort((a, b) => a.time - b.time)) {
    // Looks at each digit once: another expression would begin at each digit of a long name again.
    const title = name.replace(/#?(?<!\d)\d+$/, '')
    const lanes = groups.get(title) ?? new Lanes(writer, title)
    groups.set(title, lanes)
    if (isStart) lanes.begin(time, slice, name)
    else lanes.end(time, slice)
  }
}

/** Nanoseconds since the first event, which never go back. */
function clockOf({ timeUs, spanSeconds }: Trace): (event: number) => number {
  let last = 0
  return event => {
    const time = spanSeconds === 0 ? event * NS_PER_US : Math.round((timeUs[event] - timeUs[0]) * NS_PER_US)
    last = Math.max(last, time)
    return last
  }
}

class PerfettoWriter {
  private static readonly pieceBytes = MiB
  private pieces: Buffer[] = []
  private size = 0
  private tracks = ROOT

  get isFull(): boolean {
    return this.size >= PerfettoWriter.pieceBytes
  }

  /** The bytes since the last call. */
  take(): Buffer {
    const bytes = Buffer.concat(this.pieces, this.size)
    this.pieces = []
    this.size = 0
    return bytes
  }

  track(uuid: number, name: string, isCounter = false): void {
    const track = new ProtobufMessage().number(TRACK.uuid, uuid).text(TRACK.name, name)
    if (uuid !== ROOT) track.number(TRACK.parent, ROOT)
    if (isCounter) track.message(TRACK.counter, new ProtobufMessage().number(COUNTER.unit, UNIT_BYTES))
    this.packet(new ProtobufMessage().message(PACKET.trackDescriptor, track))
  }

  /** Makes a track below the root, and returns its number. */
  newTrack(name: string, isCounter = false): number {
    this.track(++this.tracks, name, isCounter)
    return this.tracks
  }

  counter(name: string): CounterTrack {
    return new CounterTrack(this, this.newTrack(name, true))
  }

  event(type: number, track: number, time: number, name?: string, site?: string | null): void {
    const event = new ProtobufMessage().number(EVENT.type, type).number(EVENT.track, track)
    if (name !== undefined) event.text(EVENT.name, name)
    if (site !== undefined && site !== null) {
      const annotation = new ProtobufMessage().text(ANNOTATION.name, 'site').text(ANNOTATION.text, site)
      event.message(EVENT.debugAnnotation, annotation)
    }
    this.trackEvent(time, event)
  }

  value(track: number, time: number, value: number): void {
    const event = new ProtobufMessage().number(EVENT.type, TYPE.counter).number(EVENT.track, track)
    this.trackEvent(time, event.number(EVENT.counterValue, value))
  }

  private trackEvent(time: number, event: ProtobufMessage): void {
    this.packet(new ProtobufMessage().number(PACKET.timestamp, time).message(PACKET.trackEvent, event))
  }

  private packet(packet: ProtobufMessage): void {
    const bytes = new ProtobufMessage().message(TRACE.packet, packet.number(PACKET.sequence, SEQUENCE)).finish()
    this.pieces.push(bytes)
    this.size += bytes.length
  }
}

/** A counter track; only changes are written. */
class CounterTrack {
  private value = NaN

  constructor(
    private readonly writer: PerfettoWriter,
    private readonly track: number,
  ) {}

  add(time: number, change: number): void {
    this.set(time, (this.value || 0) + change)
  }

  set(time: number, value: number): void {
    if (value === this.value) return
    this.value = value
    this.writer.value(this.track, time, value)
  }
}

/** Counters of the places in the program that held most at the peak. */
class SiteCounters {
  /** by number of a call stack */
  private readonly counters: (CounterTrack | undefined)[]

  constructor(
    private readonly trace: Trace,
    writer: PerfettoWriter,
  ) {
    const { blocks, stacks } = trace
    const sites = Array.from({ length: stacks.count }, (_, stack) => siteOf(trace, stack))
    const held = new Map<string, number>()
    for (const number of liveAfter(trace, inUseOf(trace).peakEvent)) {
      const site = sites[blocks.stack[number]]
      if (site !== null) held.set(site, (held.get(site) ?? 0) + blocks.bytes[number])
    }
    const most = [...held].sort((a, b) => b[1] - a[1]).slice(0, MOST_SITES)
    const counters = new Map(most.map(([site]) => [site, writer.counter(`held by ${site}`)]))
    this.counters = sites.map(site => (site === null ? undefined : counters.get(site)))
  }

  add(time: number, number: number, change: number): void {
    this.counters[this.trace.blocks.stack[number]]?.add(time, change)
  }
}

/** A counter of the largest piece of reserved memory that no block uses, if the recording has segments. */
class IdleCounter {
  private counter: CounterTrack | undefined
  private readonly segments: ReservedSegments
  private readonly taken: Float64Array
  private readonly step: number
  private at = 0
  private failures = 0

  constructor(
    private readonly trace: Trace,
    private readonly writer: PerfettoWriter,
  ) {
    this.segments = new ReservedSegments(trace.initialSegments)
    this.taken = takenBytes(trace)
    this.step = Math.ceil(trace.events / IDLE_SAMPLES)
  }

  /** Writes the value before `event`, which rises from call to call, if its turn has come. */
  sample(time: number, event: number): void {
    const { trace, segments } = this
    const isFailure = trace.action[event] === Action.outOfMemory && this.failures++ < IDLE_SAMPLES
    if (event % this.step !== 0 && !isFailure) return
    segments.applyEvents(trace, this.at, event)
    this.at = event
    const { idle, reservedBytes } = memoryAt(trace, event, segments, this.taken)
    if (reservedBytes === null) return
    this.counter ??= this.writer.counter('largest idle piece')
    this.counter.set(
      time,
      idle.reduce((most, piece) => Math.max(most, piece.bytes), 0),
    )
  }
}

/** Tracks for slices that overlap; a slice takes the first track that is free. */
class Lanes {
  private readonly tracks: number[] = []
  private readonly free = new SortedList<number>()
  private readonly laneOf = new Map<number, number>()

  constructor(
    private readonly writer: PerfettoWriter,
    private readonly title: string,
  ) {}

  begin(time: number, slice: number, name: string): void {
    const lane = this.free.from(0) ?? this.tracks.length
    if (!this.free.remove(lane, lane)) this.tracks.push(this.writer.newTrack(this.title))
    this.laneOf.set(slice, lane)
    this.writer.event(TYPE.begin, this.tracks[lane], time, name)
  }

  end(time: number, slice: number): void {
    const lane = this.laneOf.get(slice)
    if (lane === undefined) return
    this.laneOf.delete(slice)
    this.free.insert(lane, lane)
    this.writer.event(TYPE.end, this.tracks[lane], time)
  }

  endAll(time: number): void {
    for (const slice of [...this.laneOf.keys()]) this.end(time, slice)
  }
}
