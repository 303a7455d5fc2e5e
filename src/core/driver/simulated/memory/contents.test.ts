import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { closeSync, ftruncateSync, openSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import fc from 'fast-check'
import { GiB, KiB, MiB } from '../../../base/bytes.js'
import { Random } from '../../../base/random.js'
import { FileContents } from '../machine/file-contents.js'
import { Contents, type DeviceContents } from './contents.js'
import { HostContents } from './host-registry.js'

const opened: number[] = []
after(() => {
  for (const descriptor of opened) closeSync(descriptor)
})

const BYTES = 5 * 64 * KiB + 300

test('contents agree with plain bytes under random fills, writes and copies', () => {
  fc.assert(
    fc.property(fc.integer(), seed => {
      const random = new Random(seed)
      const array = new Uint8Array(BYTES + 3).subarray(3) // an array that is not aligned
      const pieces: DeviceContents[] = [
        new Contents(BYTES, 0x04030201),
        new Contents(BYTES, 0xdeadbeef),
        new HostContents(array),
        fileContents(BYTES),
      ]
      const shadows = pieces.map(piece => readAll(piece))
      assert.deepEqual([...shadows[0].subarray(0, 5)], [1, 2, 3, 4, 1])
      for (let step = 0; step < 30; step++) {
        const which = random.below(pieces.length)
        const [piece, shadow] = [pieces[which], shadows[which]]
        const bytes = random.below(4) === 0 ? BYTES : 1 + random.below(BYTES)
        const offset = Math.min(BYTES - bytes, random.below(3) === 0 ? 64 * KiB : random.below(BYTES))
        const kind = random.below(3)
        if (kind === 0) {
          const word = random.below(2) === 0 ? random.next() : Math.imul(random.below(256), 0x01010101) >>> 0
          piece.fill(offset, bytes, word)
          const whole = new Uint8Array(new Uint32Array(BYTES / 4).fill(word).buffer)
          shadow.set(whole.subarray(offset, offset + bytes), offset)
        } else if (kind === 1) {
          const period = random.below(2) === 0 ? 70_000 : 2 + random.below(7)
          const once = Uint8Array.from({ length: period }, () => random.next())
          const data = Uint8Array.from({ length: Math.min(bytes, 70_000) }, (_, index) => once[index % period])
          piece.write(offset, data)
          shadow.set(data, offset)
        } else {
          const sourceOffset = Math.min(BYTES - bytes, offset ^ random.below(9))
          const other = (which + 1 + random.below(pieces.length - 1)) % pieces.length
          piece.copyFrom(offset, pieces[other], sourceOffset, bytes)
          shadow.set(shadows[other].subarray(sourceOffset, sourceOffset + bytes), offset)
        }
      }
      for (const [i, piece] of pieces.entries()) {
        assert.ok(Buffer.compare(readAll(piece), shadows[i]) === 0)
        const words = new Uint32Array(shadows[i].buffer, 400, 20_000)
        const different = words.filter(word => word !== words[7]).length
        assert.equal(piece.countDifferent(400, 80_000, words[7]), different)
      }
    }),
    { numRuns: 20 },
  )
})

test('written pages that repeat a word take no host memory, others do', () => {
  const contents = new Contents(4 * 64 * KiB, 1)
  const words = new Uint32Array(32 * KiB).fill(0xfedcba98)
  contents.write(64 * KiB, new Uint8Array(words.buffer))
  assert.equal(contents.hostBytes, 0)
  assert.equal(contents.countDifferent(0, 4 * 64 * KiB, 0xfedcba98), 32 * KiB)
  words[20_000] = 1
  contents.write(64 * KiB, new Uint8Array(words.buffer))
  assert.equal(contents.hostBytes, 64 * KiB)
  assert.equal(contents.countDifferent(64 * KiB, 2 * 64 * KiB, 0xfedcba98), 1)
})

test('large fills and their copies take no host memory', () => {
  const source = new Contents(4 * GiB, 1)
  const target = new Contents(4 * GiB, 0x02000000)
  source.fill(64 * KiB, GiB, 0x07000000)
  target.copyFrom(0, source, 64 * KiB + 1, GiB - 1)
  assert.equal(source.hostBytes, 0)
  assert.ok(target.hostBytes <= 64 * KiB)
  const last = new Uint8Array(2)
  target.read(GiB - 2, last)
  assert.deepEqual([...last], [7, 2]) // the last copied byte, and the byte after it
  target.write(3 * GiB, new Uint8Array([1]))
  target.fill(0, 4 * GiB, 0)
  assert.equal(target.hostBytes, 0)
})

test('a fill of a pebibyte is one entry, and so are fills of small blocks side by side', () => {
  const contents = new Contents(2 ** 50, 0)
  contents.fill(64 * KiB, 2 ** 49, 1)
  assert.equal(contents.countDifferent(0, 2 ** 50, 0), 2 ** 47)
  for (let block = 0; block < 1000; block++) contents.fill(block * 512, 512, block + 2)
  assert.equal(contents.countDifferent(512, 1024, 3), 128)
  assert.equal(contents.hostBytes, 0)
})

test('contents in a file are filled, copied and compared in parts', () => {
  const bytes = 5 * MiB
  const [file, other, plain] = [fileContents(bytes), fileContents(bytes), new Contents(bytes, 9)]
  assert.equal(file.countDifferent(0, bytes, 0), 0)
  file.fill(1, bytes - 4, 0x04030201)
  other.copyFrom(4, file, 4, bytes - 8)
  plain.copyFrom(0, other, 0, bytes)
  assert.equal(plain.countDifferent(4, bytes - 8, 0x04030201), 0)
  assert.equal(other.countDifferent(0, bytes, 0x04030201), 2)
  file.copyFrom(0, plain, 0, bytes)
  assert.equal(file.countDifferent(0, bytes, 0), bytes / 4 - 2)
})

/** Contents in a file that its descriptor keeps. */
function fileContents(bytes: number): FileContents {
  const path = join(tmpdir(), randomUUID())
  const descriptor = openSync(path, 'wx+')
  opened.push(descriptor)
  rmSync(path)
  ftruncateSync(descriptor, bytes)
  return new FileContents(descriptor, bytes)
}

function readAll(piece: DeviceContents): Uint8Array {
  const bytes = new Uint8Array(BYTES)
  piece.read(0, bytes)
  return bytes
}
