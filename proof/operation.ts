// What a program is made of. Operations name streams, events and buffers by numbers that are given out once, so that a
// program from which some operations were taken out is a program still: what concerns something that is not there does
// nothing.

import { formatBytes } from '../src/base/bytes.js'
import type { FaultRule } from '../src/driver/simulated/index.js'
import type { CaptureMode } from '../src/index.js'

export type StreamKind = 'own' | 'adopted' | 'adopted blocking' | 'per-thread default' | 'of the peer'

export type Operation =
  | { do: 'open'; stream: number; kind: StreamKind }
  | { do: 'close'; stream: number }
  /** an adopted stream is destroyed by its owner, who did not close it here, and its handle serves another one */
  | { do: 'replace'; stream: number; by: number }
  | { do: 'allocate'; buffer: number; pool: number; stream: number; bytes: number; alignment: number; fill: boolean }
  /** on the stream of the allocation where none is named; uses that nothing puts before are announced, or put before */
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
  /** lets nothing that is submitted from now on complete, until the release of the oldest such hold, or a wait of the host */
  | { do: 'hold'; stream: number }
  | { do: 'release' }
  /** what is submitted to the stream, and to those that are made to wait for it, becomes a graph */
  | { do: 'capture'; graph: number; stream: number; mode: CaptureMode }
  /** the streams that have become part of it are joined before, or not */
  | { do: 'end capture'; graph: number; join: boolean }
  | { do: 'abort capture'; graph: number }
  | { do: 'launch'; graph: number; stream: number }
  | { do: 'close graph'; graph: number }
  | { do: 'process deferred'; pool: number }
  | { do: 'trim'; pool: number; bytes: number }
  /** the driver refuses this call once, if the next operation makes it */
  | { do: 'refuse'; call: FaultRule['call']; nth: number }

/** An operation as a line for people. */
export function describeOperation(operation: { readonly do: string }): string {
  const { do: verb, ...details } = operation
  const parts = Object.entries(details).map(([name, value]) =>
    name === 'bytes' ? formatBytes(value as number) : `${name} ${value}`,
  )
  return [verb, ...parts].join(', ')
}
