// What a program on a shared pool is made of. As in operation.ts, everything has a number that is given out once, so that what
// concerns something that is not there does nothing. A stream is used by any thread; only what made it ends it for all.

import type { FaultRule } from '../src/driver/simulated/index.js'

export type SharedOperation =
  | { do: 'start'; thread: number; ownPool: boolean }
  /** the thread frees what it holds, and closes all that it has */
  | { do: 'end'; thread: number }
  /** the thread ends without a word */
  | { do: 'die'; thread: number }
  /** the thread closes the pool with buffers live, and attaches it anew */
  | { do: 'attach anew'; thread: number }
  | { do: 'open'; thread: number; stream: number }
  /** the per-thread default stream */
  | { do: 'open own default'; thread: number; stream: number }
  /** for all by the thread that made it, for itself by another one */
  | { do: 'close'; thread: number; stream: number }
  | { do: 'allocate'; thread: number; buffer: number; stream: number; bytes: number; alignment: number; own: boolean }
  /** uses that nothing puts before are announced, or put before */
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
  | { do: 'reset'; thread: number; stream: number }
  /** the pool server looks for threads that have ended */
  | { do: 'sweep' }
  | { do: 'reclaim'; thread: number; dead: number }
  | { do: 'refuse'; call: FaultRule['call']; nth: number }

/** An operation by its name. */
export type Of<Verb extends SharedOperation['do']> = SharedOperation & { do: Verb }
