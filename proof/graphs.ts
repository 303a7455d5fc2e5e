// Captures of a program, and their graphs, as a careful user has them: whatever a graph uses stays, is known to the pool, and
// is ordered before each launch.

import type { Graph, Stream } from '../src/index.js'
import type { Capture, CaptureMode } from '../src/order/capture.js'
import type { Held, Use } from './held.js'
import type { Machine } from './machine.js'

/** A capture, under way or ended. */
export interface Recording<Point> {
  readonly origin: Stream
  readonly capture: Capture
  /** what its work uses; and that of it of which the pool knows that */
  readonly touched: Set<Held<Point>>
  readonly known: Set<Held<Point>>
  /** what it became; null before the end, and when nothing came of it */
  graph: Graph | null
}

export class Graphs<Point> {
  /** under way, and ready to be launched, by name */
  readonly open = new Map<number, Recording<Point>>()
  readonly ready = new Map<number, Recording<Point>>()

  constructor(private readonly machine: Machine<Point>) {}

  begin(name: number, stream: Stream, mode: CaptureMode): void {
    if (!this.machine.captures || stream.slot === -1 || stream.handle === 0) return
    if (stream.clocks !== this.machine.device.clocks) return
    stream.beginCapture(mode)
    const [touched, known] = [new Set<Held<Point>>(), new Set<Held<Point>>()]
    this.open.set(name, { origin: stream, capture: stream.capture!, touched, known, graph: null })
  }

  /** The capture that an open stream is part of. */
  of(stream: Stream): Recording<Point> | null {
    if (stream.capture === null) return null
    return [...this.open.values()].find(recording => recording.capture === stream.capture)!
  }

  /** The pools are told that captured work uses a live buffer, unless it is of that capture. */
  announce(held: Held<Point>, recording: Recording<Point>): void {
    if (recording.known.has(held) || held.madeIn === recording) return
    held.buffer.recordUse(recording.origin)
    recording.known.add(held)
  }

  /** Ends a capture, whose other streams have been joined or not; one that cannot be ended is over, too. */
  end(name: number): void {
    const recording = this.open.get(name)
    if (recording === undefined) return
    for (const held of recording.touched) if (!held.buffer.freed) this.announce(held, recording)
    try {
      recording.graph = recording.origin.endCapture()
      this.ready.set(name, recording)
    } finally {
      if (recording.capture.ended) {
        this.open.delete(name)
        if (recording.graph === null) this.forget(recording)
      }
    }
  }

  abort(name: number): void {
    const recording = this.open.get(name)
    if (recording === undefined) return
    recording.origin.abortCapture()
    this.open.delete(name)
    this.forget(recording)
  }

  /** All that uses the buffers of the graph is put before, if it can be; what they contain is the graph's from then on. */
  launch(name: number, stream: Stream, putBefore: (uses: readonly Use<Point>[]) => boolean): void {
    const recording = this.ready.get(name)
    if (recording === undefined || stream.slot === -1 || stream.clocks !== recording.origin.clocks) return
    const touched = [...recording.touched]
    if (!putBefore(touched.flatMap(({ run }) => run.uses))) return
    recording.graph!.launch(stream)
    const point = this.machine.pointOf(stream)
    for (const { run, captured } of touched) {
      run.uses = [{ point, stream, byGraph: true }]
      run.stamp = captured.get(recording)!.stamp
    }
  }

  close(name: number): void {
    const recording = this.ready.get(name)
    if (recording === undefined) return
    this.ready.delete(name)
    recording.graph!.close()
  }

  /** None of its work will ever run. */
  private forget(recording: Recording<Point>): void {
    for (const { captured } of recording.touched) captured.delete(recording)
  }
}
