// The bytes of memory that processes share: a file of a machine, which each of them reads and writes at offsets. Reads
// see what any process has written before. Unwritten parts are zeros, and take no memory of the host.

import { readSync, writeSync } from 'node:fs'
import { copyInParts, type DeviceContents, eachPart, repeatWord } from '../memory/contents.js'

/** Contents of memory in a file. */
export class FileContents implements DeviceContents {
  constructor(
    private readonly descriptor: number,
    readonly byteLength: number,
  ) {}

  fill(offset: number, bytes: number, word: number): void {
    eachPart(offset, bytes, (at, part) => {
      repeatWord(word, at, part)
      this.write(at, part)
    })
  }

  write(offset: number, source: Uint8Array): void {
    for (let done = 0; done < source.length; ) {
      done += writeSync(this.descriptor, source, done, source.length - done, offset + done)
    }
  }

  read(offset: number, target: Uint8Array): void {
    for (let done = 0; done < target.length; ) {
      const count = readSync(this.descriptor, target, done, target.length - done, offset + done)
      if (count === 0) throw new Error('the file of this memory was cut short')
      done += count
    }
  }

  copyFrom(offset: number, source: DeviceContents, sourceOffset: number, bytes: number): void {
    copyInParts(source, sourceOffset, this, offset, bytes)
  }

  countDifferent(offset: number, bytes: number, word: number): number {
    let different = 0
    eachPart(offset, bytes, (at, part) => {
      this.read(at, part)
      for (const each of new Uint32Array(part.buffer, 0, part.length / 4)) if (each !== word) different++
    })
    return different
  }
}
