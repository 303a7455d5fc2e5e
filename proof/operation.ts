// The operations of a program. They name streams, events and buffers by numbers that are used once. An operation on
// an object that does not exist does nothing, so that a program stays a program when operations are removed.

import { formatBytes } from '../src/core/base/bytes.js'
import type { FaultRule } from '../src/entries/simulated.js'
import type { CaptureMode, OutputLifetime } from '../src/index.js'

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
  | { do: 'capture'; graph: number; stream: number; mode: CaptureMode; group?: number }
  /** whether the streams that are part of it are joined first */
  | { do: 'end capture'; graph: number; join: boolean }
  | { do: 'abort capture'; graph: number }
  | { do: 'launch'; graph: number; stream: number }
  | { do: 'close graph'; graph: number }
  | { do: 'make group'; group: number; pool: number; refuses: boolean; poison: boolean }
  /** in the capture of a group that the stream is part of */
  | { do: 'output'; buffer: number; stream: number; bytes: number; lifetime: OutputLifetime }
  | { do: 'reserve group'; group: number; bytes: number }
  | { do: 'trim group'; group: number; bytes: number }
  | { do: 'close group'; group: number }
  | { do: 'process deferred'; pool: number }
  | { do: 'trim'; pool: number; bytes: number }
  /** with all work complete nothing may be pending */
  | { do: 'idle' }
  | { do: 'limit'; pool: number; bytes: number }
  | { do: 'reserve'; pool: number; bytes: number }
  /** allocates once the pool says that there may be room; `abort` ends the wait */
  | { do: 'await room'; buffer: number; pool: number; stream: number; bytes: number }
  | { do: 'abort'; buffer: number }
  /** an observer of segments calls the pool, and throws at its nth call; 0 never throws */
  | { do: 'observe'; pool: number; throwsAt: number }
  | { do: 'stop observing'; pool: number }
  /**
   * of a pool, or of the growable buffer whose number is negated; with `settle`, until the end; with `hold`, the copies
   * are kept waiting like a stream
   */
  | {
      do: 'sleep'
      memory: number
      keep: 'host' | 'nothing'
      into: boolean
      unchanged: boolean
      reaction: Reaction
      hold: boolean
      settle: boolean
    }
  | {
      do: 'wake'
      memory: number
      keepCopy: boolean
      wait: 'host' | 'streams'
      reaction: Reaction
      look: boolean
      hold: boolean
      settle: boolean
    }
  /** Node goes on */
  | { do: 'turn'; count: number }
  /** Node goes on until all that sleeps or wakes has ended; no stream is kept from going on */
  | { do: 'settle' }
  | { do: 'growable'; buffer: number; stream: number; bytes: number }
  | { do: 'resize'; buffer: number; bytes: number }
  | { do: 'spillable'; spillable: number; stream: number; bytes: number }
  /** a use that ends at once, or that has a number, stays until `give back` */
  | { do: 'borrow'; spillable: number; use: number; stream: number; writes: boolean }
  | { do: 'work'; use: number; stream: number; write: boolean }
  | { do: 'give back'; use: number; stream?: number }
  /** a buffer; for 0, buffers of `bytes` in all */
  | { do: 'spill'; spillable: number; stream: number; bytes: number }
  | { do: 'free spillable'; spillable: number }
  | { do: 'close spillables' }
  /** the driver refuses the nth such call of the next operation */
  | { do: 'refuse'; call: FaultRule['call']; nth: number }

/** The program throws, frees a buffer, trims, or does nothing while contents are copied. */
export type Reaction = 'none' | 'throw' | 'free' | 'trim'

/** An operation as one readable line. */
export function describeOperation(operation: { readonly do: string }): string {
  const { do: verb, ...details } = operation
  const parts = Object.entries(details).map(([name, value]) =>
    name === 'bytes' ? formatBytes(value as number) : `${name} ${value}`,
  )
  return [verb, ...parts].join(', ')
}
