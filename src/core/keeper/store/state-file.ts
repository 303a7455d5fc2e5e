// The keeper's state in a file in memory, which outlives the keeper if another process has it, too. The file has two
// halves, which are written in turn. If the keeper is killed while it writes one, the other has the state before.

import { readSync, writeSync } from 'node:fs'
import { memoryFile } from '../../libraries/sealed-memory.js'

/** The second half begins here. The file takes memory only where it was written. */
const HALF_BYTES = 2 ** 32
// checksum of all that follows, length of the state, number of the write
const HEAD_BYTES = 16

/** Node's own; an import would load the module for keepers without a store, too. */
const crc32 = (bytes: Uint8Array) => process.getBuiltinModule('node:zlib').crc32(bytes)

export class StateFile {
  /** Opens a new file, or that of a keeper before. */
  constructor(
    readonly descriptor = memoryFile('cuda-mempool-state'),
    private writes = 0,
  ) {}

  /** The state that was written last as a whole; null for a new file. The next write keeps it. */
  read(): Uint8Array | null {
    const halves = [0, 1].map(half => this.half(half)).filter(half => half !== null)
    const [last] = halves.sort((a, b) => b.number - a.number)
    if (last === undefined) return null
    this.writes = last.number
    return last.state
  }

  write(state: Uint8Array): void {
    const bytes = Buffer.alloc(HEAD_BYTES + state.length)
    bytes.writeUInt32LE(state.length, 4)
    bytes.writeDoubleLE(++this.writes, 8)
    bytes.set(state, HEAD_BYTES)
    bytes.writeUInt32LE(crc32(bytes.subarray(4)), 0)
    const start = (this.writes % 2) * HALF_BYTES
    for (let done = 0; done < bytes.length; ) {
      done += writeSync(this.descriptor, bytes, done, bytes.length - done, start + done)
    }
  }

  private half(half: number): { readonly number: number; readonly state: Uint8Array } | null {
    const head = this.bytesAt(half * HALF_BYTES, HEAD_BYTES)
    if (head.length < HEAD_BYTES) return null
    const bytes = this.bytesAt(half * HALF_BYTES, HEAD_BYTES + head.readUInt32LE(4))
    if (crc32(bytes.subarray(4)) !== head.readUInt32LE(0)) return null
    return { number: head.readDoubleLE(8), state: bytes.subarray(HEAD_BYTES) }
  }

  /** Fewer at the end of the file. */
  private bytesAt(start: number, count: number): Buffer {
    const bytes = Buffer.alloc(count)
    let done = 0
    for (let read = 1; read > 0 && done < count; done += read) {
      read = readSync(this.descriptor, bytes, done, count - done, start + done)
    }
    return bytes.subarray(0, done)
  }
}
