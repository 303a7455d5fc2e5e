// The operations of a program. They name streams, events and buffers by numbers that are used once. An operation on
// an object that does not exist does nothing, so that a program stays a program when operations are removed.

import { formatBytes } from '../src/base/bytes.js'
import type { FaultRule } from '../src/driver/simulated/index.js'
import type { CaptureMode } from '../src/index.js'

export type StreamKind = 'own' | 'adopted' | 'adopted blocking' | 'per-thread default' | 'of the peer'

export type Operation =
  | { do: 'open'; stream: number; kind: StreamKind }
  | { do: 'close'; stream: number }
  /** the owner destroys an adopted stream without closing it here, and the driver uses its handle for a new stream */
  | { do: 'replace'; stream: number; by: number }
  | { do: 'allocate'; buffer: number; pool: number; stream: number; bytes: number; alignment: number; fill: boolean }
  /** without a stream, on the allocation's own; unordered uses are announced or ordered first */
  | { do: 'free'; buffer: number; stream?: number; announce: boolean; byAddress: boolean }
  | { do: 'use'; buffer: number; stream: number; write: boolean }
  | { do: 'announce'; buffer: number; stream: number }
  | { do: 'record'; event: number; stream: number }
  | { do: 'wait'; event: number; stream: number }
  | { do: 'query event'; event: number }
  | { do: 'synchronise event'; event: number }
  | { do: 'query'; stream: number }
  | { do: 'synchronise'; stream: number }
  | { do: 'synchronise device' }
  /** keeps all later work of the stream pending, until the release of the oldest hold, or a wait of the host */
  | { do: 'hold'; stream: number }
  | { do: 'release' }
  /** later work of the stream, and of streams that wait for it, becomes a graph */
  | { do: 'capture'; graph: number; stream: number; mode: CaptureMode }
  /** whether the streams that are part of it are joined first */
  | { do: 'end capture'; graph: number; join: boolean }
  | { do: 'abort capture'; graph: number }
  | { do: 'launch'; graph: number; stream: number }
  | { do: 'close graph'; graph: number }
  | { do: 'process deferred'; pool: number }
  | { do: 'trim'; pool: number; bytes: number }
  /** the driver refuses the nth such call of the next operation */
  | { do: 'refuse'; call: FaultRule['call']; nth: number }

/** An operation as one readable line. */
export function describeOperation(operation: { readonly do: string }): string {
  const { do: verb, ...details } = operation
  const parts = Object.entries(details).map(([name, value]) =>
    name === 'bytes' ? formatBytes(value as number) : `${name} ${value}`,
  )
  return [verb, ...parts].join(', ')
}
