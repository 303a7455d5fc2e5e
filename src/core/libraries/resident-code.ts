// Node's code takes 20 MB of a process that has started. An idle process runs little of it. The system reads the pages
// from their file again when they are needed.

import { readFileSync } from 'node:fs'
import { openSystem } from './system-calls.js'

const MADV_DONTNEED = 4
/** Code that is mapped from a file: address, end, rights, offset, device, and the number of the file. */
const CODE = /^([0-9a-f]+)-([0-9a-f]+) r-xp \S+ \S+ [1-9]\d* /gm

/** Gives back the memory of all code. Nothing is lost: code is never written, as other parts of a file may be. */
export function dropCode(): void {
  const { calls } = openSystem()
  for (const [, from, to] of readFileSync('/proc/self/maps', 'utf8').matchAll(CODE)) {
    const address = Number.parseInt(from, 16)
    calls.madvise(address, Number.parseInt(to, 16) - address, MADV_DONTNEED)
  }
}
