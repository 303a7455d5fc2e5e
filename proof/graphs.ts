// The captures and graphs of a program, as a careful user handles them: a graph's buffers stay, the pool knows of
// them, and their other uses are ordered before each launch.

import type { CaptureMode } from '../src/core/order/capture.js'
import type { Stream } from '../src/index.js'
import type { Held, Recording, Use } from './held.js'
import type { Machine } from './machine.js'

export class Graphs<Point> {
  /** by name: captures under way, and graphs ready for launch */
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

  /**
   * Announces that captured work uses a live buffer, unless the buffer was made in that capture. A growable buffer
   * stays until the graph is closed instead.
   */
  announce(held: Held<Point>, recording: Recording<Point>): void {
    if (recording.known.has(held) || held.madeIn === recording || held.pool === -1) return
    held.buffer.recordUse(recording.origin)
    recording.known.add(held)
  }

  /** Ends a capture, with its other streams joined or not. A capture that fails to end is over, too. */
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

  /**
   * Orders all uses of the graph's buffers before the launch, if possible. From then on they hold the graph's
   * contents.
   */
  launch(name: number, stream: Stream, putBefore: (uses: readonly Use<Point>[]) => boolean): void {
    const recording = this.ready.get(name)
    if (recording === undefined || stream.slot === -1 || stream.clocks !== recording.origin.clocks) return
    const touched = [...recording.touched]
    if (!putBefore(touched.flatMap(({ run }) => run.uses))) return
    recording.graph!.launch(stream)
    const point = this.machine.pointOf(stream)
    for (const { pool, run, captured } of touched) {
      run.uses = [{ point, stream, byGraph: pool !== -1 }]
      run.stamp = captured.get(recording)!.stamp
    }
  }

  /** Whether a graph may still use the buffer. */
  mayUse(held: Held<Point>): boolean {
    return [...this.open.values(), ...this.ready.values()].some(({ touched }) => touched.has(held))
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
