// The captures and graphs of a program, as a careful user handles them: a graph's buffers stay, the pool knows of
// them, and their other uses are ordered before each launch.

import type { CaptureMode } from '../src/core/order/capture.js'
import type { Stream } from '../src/index.js'
import type { Groups } from './groups.js'
import type { Held, Recording, Sharing, Use } from './held.js'
import type { Machine } from './machine.js'

export class Graphs<Point> {
  /** by name: captures under way, and graphs ready for launch */
  readonly open = new Map<number, Recording<Point>>()
  readonly ready = new Map<number, Recording<Point>>()

  constructor(
    private readonly machine: Machine<Point>,
    private readonly groups: Groups<Point>,
  ) {}

  begin(name: number, stream: Stream, mode: CaptureMode, sharing: Sharing<Point> | null): void {
    if (!this.machine.captures || stream.slot === -1 || stream.handle === 0) return
    if (stream.clocks !== this.machine.device.clocks) return
    if (sharing === null) stream.beginCapture(mode)
    else if (!this.groups.begin(sharing, stream, mode)) return
    const [touched, known] = [new Set<Held<Point>>(), new Set<Held<Point>>()]
    const [number, details] = [sharing === null ? 0 : ++sharing.captures, { touched, known, graph: null }]
    const recording = { origin: stream, capture: stream.capture!, ...details, sharing, number, shared: [] }
    this.open.set(name, recording)
    if (sharing !== null) sharing.capture = recording
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
  end(name: number, free: (held: Held<Point>) => void): void {
    const recording = this.open.get(name)
    if (recording === undefined) return
    for (const held of recording.touched) if (!held.buffer.freed) this.announce(held, recording)
    try {
      this.groups.end(recording, free)
      this.ready.set(name, recording)
    } finally {
      if (recording.capture.ended) {
        this.open.delete(name)
        this.groups.ended(recording)
        if (recording.graph === null) this.forget(recording)
      }
    }
  }

  abort(name: number): void {
    const recording = this.open.get(name)
    if (recording === undefined) return
    recording.origin.abortCapture()
    this.open.delete(name)
    this.groups.ended(recording)
    this.forget(recording)
  }

  /**
   * Orders all uses of the graph's buffers before the launch, if possible, unless the library does. From then on they
   * hold the graph's contents. Returns false if there is no launch.
   */
  launch(name: number, stream: Stream, putBefore: (uses: readonly Use<Point>[]) => boolean): boolean {
    const recording = this.ready.get(name)
    if (recording === undefined || stream.slot === -1 || stream.clocks !== recording.origin.clocks) return false
    const [touched, { sharing }] = [[...recording.touched], recording]
    const before = touched.flatMap(held => held.run.uses.filter(use => !this.groups.orders(sharing, held, use)))
    if (!putBefore(before)) return false
    if (sharing === null) recording.graph!.launch(stream)
    else if (!this.groups.launch(recording, stream)) return false
    const point = this.machine.pointOf(stream)
    for (const { pool, run, captured } of touched) {
      const { uses, stamp } = captured.get(recording)!
      if (uses.length === 0) continue // the driver has refused the write
      run.uses = [{ point, stream, byGraph: pool !== -1, sharing }]
      run.stamp = stamp
    }
    return true
  }

  /** Whether a graph may still use the buffer. */
  mayUse(held: Held<Point>): boolean {
    return [...this.open.values(), ...this.ready.values()].some(({ touched }) => touched.has(held))
  }

  close(name: number): void {
    const recording = this.ready.get(name)
    if (recording === undefined) return
    this.ready.delete(name)
    this.groups.closing(recording)
    recording.graph!.close()
  }

  /** None of its work will ever run. */
  private forget(recording: Recording<Point>): void {
    for (const { captured } of recording.touched) captured.delete(recording)
  }
}
