// Calls of code that is slow anyway: it calls the driver, keeps lists, searches, or passes a buffer on. V8 inlines
// `allocate` and `free` into hot loops until an inlining budget is spent, and slow code must not use up that budget. A
// call site is never inlined once it is megamorphic: it has seen more than four shapes of receivers, and more than one
// function. `prepareSlowCalls` makes the call sites below megamorphic.

import type { Stream } from '../order/stream.js'
import type { Allocation, BufferOwner } from './allocation.js'
import type { DeviceBuffer } from './buffer.js'

/**
 * What a caching pool does off its cached path. V8 knows the methods of a pool that it knows, and so inlines them at
 * any call site, but it knows nothing of the elements of an array. To call one costs less than to look a method up.
 */
export type OffPath = readonly [
  take: (bytes: number, stream: Stream, mayFail: boolean) => DeviceBuffer | null,
  release: (allocation: Allocation, tag: number, stream: Stream | undefined) => void,
]

/** Gives the buffer back to its owner. */
export function freeSlowly(owner: BufferOwner, buffer: DeviceBuffer, stream?: Stream): void {
  owner.release(buffer, stream)
}

/** Allocates off the cached path. */
export function takeOffPath(offPath: OffPath, bytes: number, stream: Stream, mayFail: boolean): DeviceBuffer | null {
  return offPath[0](bytes, stream, mayFail)
}

/** Frees off the cached path. */
export function releaseOffPath(offPath: OffPath, allocation: Allocation, tag: number, stream?: Stream): void {
  offPath[1](allocation, tag, stream)
}

/** Calls after which V8 collects type feedback for a function. */
const FEEDBACK_CALLS = 100
let isPrepared = false

/**
 * Makes the call sites megamorphic: they meet receivers of five shapes, or several functions. Opening a device does
 * this; later calls do nothing.
 */
export function prepareSlowCalls(): void {
  if (isPrepared) return
  isPrepared = true
  const releases = [() => {}, () => {}]
  const parts: OffPath[] = [
    [() => null, () => {}],
    [() => null, () => {}],
  ]
  const shapes = [
    { a: 0, release: releases[0] },
    { b: 0, release: releases[1] },
    { c: 0, release: releases[0] },
    { d: 0, release: releases[1] },
    { e: 0, release: releases[0] },
  ]
  const [buffer, stream, allocation] = [{} as DeviceBuffer, {} as Stream, {} as Allocation]
  for (let call = 0; call < FEEDBACK_CALLS; call++) {
    for (const shape of shapes) freeSlowly(shape, buffer)
    for (const offPath of parts) {
      takeOffPath(offPath, 0, stream, false)
      releaseOffPath(offPath, allocation, 0)
    }
  }
}
