// The memory of each private pool on each stream at one moment. PyTorch lends memory neither from one pool to another
// nor from one stream to another.

import { type Holder, holdersOf } from '../failures/holders.js'
import type { MemoryAt } from '../failures/memory-at.js'
import type { Trace } from '../trace.js'

/** The segments of one pool and stream. */
export interface PoolMemory {
  /** the pool's id, as `a,b`; `0,0` is the default pool */
  readonly pool: string
  /** the stream's handle */
  readonly stream: number
  readonly reservedBytes: number
  /** held by the program, as requested */
  readonly inUseBytes: number
  /** freed, but in use on another stream */
  readonly waitingBytes: number
  readonly idleBytes: number
  readonly largestIdleBytes: number
  /** the call site that holds most of it; null if nothing is in use */
  readonly holder: Holder | null
}

/** By pool and stream, most reserved bytes first. */
export function poolsOf(trace: Trace, { segments, used, waiting, idle }: MemoryAt): PoolMemory[] {
  const { blocks, pools, streams } = trace
  const found = new Map<number, { -readonly [Name in keyof PoolMemory]: PoolMemory[Name] } & { live: number[] }>()
  const of = (pool: number, stream: number) => {
    const key = pool * streams.length + stream
    let memory = found.get(key)
    if (memory === undefined) {
      const zero = {
        reservedBytes: 0,
        inUseBytes: 0,
        waitingBytes: 0,
        idleBytes: 0,
        largestIdleBytes: 0,
        holder: null,
        live: [],
      }
      memory = { pool: pools[pool], stream: streams[stream], ...zero }
      found.set(key, memory)
    }
    return memory
  }
  const isWaiting = new Set(waiting)
  let next = 0
  for (const { address, bytes, pool, stream } of segments) {
    const memory = of(pool, stream)
    memory.reservedBytes += bytes
    while (next < used.length && blocks.address[used[next]] < address) next++
    for (; next < used.length && blocks.address[used[next]] < address + bytes; next++) {
      const number = used[next]
      if (isWaiting.has(number)) memory.waitingBytes += blocks.bytes[number]
      else {
        memory.inUseBytes += blocks.bytes[number]
        memory.live.push(number)
      }
    }
  }
  for (const { bytes, segment } of idle) {
    const memory = of(segment.pool, segment.stream)
    memory.idleBytes += bytes
    memory.largestIdleBytes = Math.max(memory.largestIdleBytes, bytes)
  }
  return Array.from(found.values(), ({ live, ...memory }) => ({
    ...memory,
    holder: holdersOf(trace, live).at(0) ?? null,
  })).sort((a, b) => b.reservedBytes - a.reservedBytes)
}
