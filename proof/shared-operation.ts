// The operations of a program on a shared pool. As in operation.ts, numbers are used once, and an operation on an
// object that does not exist does nothing. Any thread may use a stream; only its maker ends it for all.

import type { FaultRule } from '../src/entries/simulated.js'

export type SharedOperation =
  | { do: 'start'; thread: number; ownPool: boolean }
  /** the thread frees its buffers, and closes everything it has */
  | { do: 'end'; thread: number }
  /** the thread ends without closing anything */
  | { do: 'die'; thread: number }
  /** the thread closes the pool with buffers live, and attaches it anew */
  | { do: 'attach anew'; thread: number }
  | { do: 'open'; thread: number; stream: number }
  /** the per-thread default stream */
  | { do: 'open own default'; thread: number; stream: number }
  /** by the thread that made it: for all; by any other thread: for itself */
  | { do: 'close'; thread: number; stream: number }
  | { do: 'allocate'; thread: number; buffer: number; stream: number; bytes: number; alignment: number; own: boolean }
  /** unordered uses are announced or ordered first */
  | { do: 'free'; buffer: number; stream?: number; announce: boolean; byAddress: boolean }
  | { do: 'use'; buffer: number; stream: number }
  | { do: 'announce'; buffer: number; stream: number }
  | { do: 'transfer'; buffer: number }
  | { do: 'adopt'; thread: number; buffers: readonly number[] }
  | { do: 'record'; thread: number; event: number; stream: number }
  | { do: 'wait'; event: number; stream: number }
  | { do: 'pass event'; event: number; thread: number }
  | { do: 'query' | 'synchronise'; thread: number; stream: number }
  | { do: 'hold'; thread: number; stream: number }
  | { do: 'release' }
  | { do: 'process deferred'; thread: number }
  | { do: 'trim'; thread: number; bytes: number }
  /** of a caching pool; 0 stands for the limit that it was made with */
  | { do: 'limit'; thread: number; bytes: number }
  | { do: 'reset'; thread: number; stream: number }
  /** the pool server looks for threads that have ended */
  | { do: 'sweep' }
  | { do: 'reclaim'; thread: number; dead: number }
  | { do: 'refuse'; call: FaultRule['call']; nth: number }

/** An operation by its name. */
export type Of<Verb extends SharedOperation['do']> = SharedOperation & { do: Verb }
