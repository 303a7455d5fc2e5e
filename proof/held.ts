// A program's record of its buffers and captures: the uses of a buffer, in work that runs and in captures, and its
// contents.

import type { Capture } from '../src/core/order/capture.js'
import type { DeviceBuffer, Graph, GraphGroup, OutputLifetime, Stream } from '../src/index.js'

/** A piece of work on a buffer. */
export interface Use<Point> {
  readonly point: Point
  readonly stream: Stream
  /** it is the launch of a graph, which the pool knows to use the buffer, so that it needs no announcement */
  readonly byGraph: boolean
  /** the group of that graph; null for none */
  readonly sharing?: Sharing<Point> | null
}

/** The last write and all reads since; empty before the first write. */
export interface History<Point> {
  uses: Use<Point>[]
  stamp: number
  /** whether the last write was to all of the buffer, which may have grown since */
  isWhole: boolean
}

export interface Held<Point> {
  readonly buffer: DeviceBuffer
  /** -1 for a growable buffer, whose length changes */
  readonly pool: number
  bytes: number
  /** the size of its block; 0 if it is not counted, because it was aligned or made in a capture */
  readonly units: number
  /** the capture that it was allocated in */
  readonly madeIn: Recording<Point> | null
  /** the work that runs */
  readonly run: History<Point>
  /** the work of each capture, which runs at each launch */
  readonly captured: Map<Recording<Point>, History<Point>>
  readonly announced: Set<Stream>
  /** the group whose memory it has; and how long it is valid, if it is an output */
  readonly sharing: Sharing<Point> | null
  readonly output: OutputLifetime | null
}

/** A capture, under way or ended. */
export interface Recording<Point> {
  readonly origin: Stream
  readonly capture: Capture
  /** the buffers that its work uses; and those whose use the pool knows */
  readonly touched: Set<Held<Point>>
  readonly known: Set<Held<Point>>
  /** the graph; null before the end, and after an abort */
  graph: Graph | null
  /** the group that it is a capture of, its number there, and its shared outputs until it ends */
  readonly sharing: Sharing<Point> | null
  readonly number: number
  readonly shared: { readonly ptr: number; readonly bytes: number }[]
}

/** A group of graphs that share memory. */
export interface Sharing<Point> {
  readonly group: GraphGroup
  readonly pool: number
  /** whether it refuses launches whose order is not known */
  readonly refuses: boolean
  /** captures so far, the one under way, and graphs that can be launched */
  captures: number
  capture: Recording<Point> | null
  graphs: number
  /** the graph that was launched last; null for none, and once its contents are gone */
  latest: Recording<Point> | null
  /** whether a refused launch, or the pool, may have taken the contents */
  mayBeLost: boolean
  /** the latest launch, and uses of outputs since; and whether no other work counts for the next launch */
  pending: Point[]
  isExact: boolean
}

export function historyOf<Point>(held: Held<Point>, recording: Recording<Point> | null): History<Point> {
  if (recording === null) return held.run
  const history = held.captured.get(recording) ?? { uses: [], stamp: 0, isWhole: true }
  held.captured.set(recording, history)
  return history
}
