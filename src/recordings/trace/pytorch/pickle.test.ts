import assert from 'node:assert/strict'
import { test } from 'node:test'
import { gunzipSync } from 'node:zlib'
import fc from 'fast-check'
import { FormatError } from '../../../core/base/errors.js'
import { readPickle } from './pickle.js'
import { PickleTuple, writePickle } from './pickle-writer.js'

/** The same values, pickled by Python 3.11 with each protocol, in gzip. Protocol 5 has an additional bytearray. */
const BY_PYTHON: Readonly<Record<number, string>> = {
  2:
    'H4sIAAAAAAACA+1SuU4DMRAd59glEO77DKWREC0NEnSRsKB2Y4UVGC0SZDPZjQRCgW24/AMcikRFgURDiSgo+AwaCkSdH0CL7QCi' +
    '5AN4hefNjN+zrXGcqiNQngUAuVOJ9pAITNE6pgVmZiTP6PpWOQoxK9ChDFiyAmQlSZYBCCwnGmY51CnEypjEoLKmktgMiHJMgES5' +
    'Ntdtd7/68ni/5ig3sSgol9g9r6oNWlj6YbHKfTNQnfALzW/ZtHI/rNGT5Oawze3A0xd2BbbR4uLDpcFVMf6SFQ+bX+Rg/m3hFGoN' +
    'aR8fyV0tyglsp9y0sYMbew/zPKXj8y12Wvf385v3xh128Vnd3v3Hn4Hd9jM1ry9i7OFmqqVSpRpEQamEva3JrQflUA+hT2A/XT09' +
    'axWjWmVbhjggcJAycoRDjLDUMQ6bwNInOEJbjGUiHJU8rSVBWeKYwPE6Tvh5gZOMeKHn99Zxys8zElrb0PeqcgMLAqep7/iOrM19' +
    'AubA5hkLAwAA',
  4:
    'H4sIAAAAAAACA2tgmbqPiQEMaqdo9LCm5haUVE6JnaJRCyQ0U3tYMvNKikF8bwbv/74MjL7//3sxMDAyeP0HAhBRD+QyNHSxgkiG' +
    'LlaQyH8wj4Gxiw1s7v8udjAfKM1eXXR798YEti72/2Ag38XOCFbzoIsD4ggGBziroYsTxmLo4mVAAh9g2hS62P+CDdqf2sOWlpOf' +
    'CHGru/3OmSAwy70BqsO9/gOUUWf+xKaDoXROag9rSWoFRH0Pw5QexsQpPUyHV07pYXs2femzOWumROgA7agYBUSDKT0sH+bPaJjS' +
    'wxkfX1CUX5IfHz8FGC3J+XnFkGD26+gE8ktKC3JSIUmKsXWKN6M3UxuY9GZuBwmBGN4sJUCdzPl5qUBltVMyeGKBKhKLEzMEQRxv' +
    'xuIetuKMxKLUFJApGWwZbKmlegC4BZWtyQIAAA==',
  5:
    'H4sIAAAAAAACA2tgnXqZiQEMaqdo9LCm5haUVE6JnaJRCyQ0U3tYMvNKikF8bwbv/74MjL7//3sxMDAyeP0HAhBRD+QyNHSxgkiG' +
    'LlaQyH8wj4Gxiw1s7v8udjAfKM1eXXR798YEti72/2Ag38XOCFbzoIsD4ggGBziroYsTxmLo4mVAAh9g2hS62P+CDdqf2sOWlpOf' +
    'CHGru/3OmSAwy70BqsO9/gOUUWf+xKaDoXROag9rSWoFRH0Pw5QexsQpPUyHV07pYXs2femzOWumROgA7agYBUSDKT0sH+bPaJjS' +
    'wxkfX1CUX5IfHz8FGC3J+XnFkGD26+gE8ktKC3JSIUmKsXWKN6M3UxuY9GZuBwmBGN4sJUCdzPl5qUBltVMyeGKBKhKLEzMEQRxv' +
    'xuIetuKMxKLUFJApGWwZbMDITKosAZo6jRka4YlJyVNK9QBgg2qr3gIAAA==',
}

const INTEGERS = [
  0,
  255,
  256,
  65535,
  65536,
  -1,
  2147483647,
  -2147483648,
  2147483648,
  -2147483649,
  4294967296,
  -1099511627776,
  140737488355333,
  1795166337462907,
  9007199254740991,
  -9007199254740991,
  2 ** 62,
  -(2 ** 63),
  2 ** 63,
  -(2 ** 100),
  Number(2n ** 53n + 1n),
  Number(-(2n ** 54n) - 3n),
]
const VALUES = {
  empty: [{}, [], []],
  ints: INTEGERS,
  floats: [0.1, -0, Infinity, 1e300],
  texts: ['', 'a', 'é', '日本', 'x'.repeat(300), '😀', '__proto__'],
  consts: [null, true, false],
  tuples: [[1], [1, 2], [1, 2, 3], [1, 2, 3, 4]],
  one: [{ a: [1] }],
  ['__proto__']: { a: 1 },
  shared: [INTEGERS, INTEGERS],
}

function unpack(base64: string): Buffer {
  return gunzipSync(Buffer.from(base64, 'base64'))
}

/** Nested objects without a prototype, as the reader makes them. */
function bare(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(bare)
  if (typeof value !== 'object' || value === null) return value
  const entries = Object.entries(value).map(([key, item]) => [key, bare(item)] as const)
  return Object.assign(Object.create(null), Object.fromEntries(entries))
}

function refused(bytes: Buffer | readonly number[], message: RegExp): void {
  assert.throws(
    () => readPickle(Buffer.from(bytes)),
    (error: Error) => {
      assert(error instanceof FormatError, `${error.name}: ${error.message}`)
      assert.match(error.message, message)
      return true
    },
  )
}

const text = (value: string) => [...Buffer.from(value, 'latin1')]
const MARK = 0x28
const STOP = 0x2e
const NONE = 0x4e
const MEMOIZE = 0x94

for (const protocol of [2, 4, 5]) {
  test(`pickles of Python with protocol ${protocol} are read`, () => {
    const read = readPickle(unpack(BY_PYTHON[protocol])) as Record<string, unknown>
    if (protocol === 5) {
      assert.deepEqual(read['bytes'], Buffer.from('abc'))
      delete read['bytes']
    }
    assert.deepEqual(read, bare(VALUES))
    const [first, second] = read['shared'] as unknown[]
    assert.equal(first, second, 'a list that the file shares is shared')
    assert.equal(first, read['ints'])
  })

  test(`a pickle of protocol ${protocol} cut anywhere is refused`, () => {
    const bytes = unpack(BY_PYTHON[protocol])
    for (let length = 0; length < bytes.length; length++) refused(bytes.subarray(0, length), /truncated|byte/)
  })

  test(`a pickle of protocol ${protocol} with any byte changed is read or refused, without another error`, () => {
    const bytes = unpack(BY_PYTHON[protocol])
    fc.assert(
      fc.property(fc.nat(bytes.length - 1), fc.nat(255), (at, byte) => {
        const damaged = Buffer.from(bytes)
        damaged[at] = byte
        try {
          readPickle(damaged)
        } catch (error) {
          assert(error instanceof FormatError, String(error))
        }
      }),
      { numRuns: 3000 },
    )
  })
}

test('values are read as they were written', () => {
  const value = fc.letrec(tie => ({
    value: fc.oneof(
      { maxDepth: 4 },
      fc.oneof(fc.constant(null), fc.boolean(), fc.maxSafeInteger(), fc.double(), fc.string({ unit: 'grapheme' })),
      fc.array(tie('value')),
      fc.dictionary(fc.string({ unit: 'grapheme' }), tie('value')),
    ),
  })).value
  fc.assert(fc.property(value, tree => assert.deepEqual(readPickle(writePickle(tree)), bare(tree))))
})

test('after the most values that can be shared, others are written again', () => {
  const values = Array.from({ length: 20 }, (_, i) => ({ text: `value ${i % 7}`, list: [`item ${i % 5}`] }))
  const shared = [...values, ...values]
  const [all, few] = [writePickle(shared), writePickle(shared, 10)]
  assert.deepEqual(readPickle(few), readPickle(all))
  assert.ok(few.length > all.length)
})

test('similar texts are not confused', () => {
  const texts = ['\0\0', '\0', '', 'a\0', 'a', 'action', 'actioN', '\0\0\0']
  assert.deepEqual(readPickle(writePickle([...texts, ...texts.toReversed()])), [...texts, ...texts.toReversed()])
})

test('containers of more than 1000 items, which come in batches, are read', () => {
  const list = Array.from({ length: 2500 }, (_, i) => i * 1000)
  const dict = Object.fromEntries(list.map(i => [`key ${i}`, i]))
  const tuple = new PickleTuple([list, list])
  assert.deepEqual(readPickle(writePickle({ dict, tuple })), bare({ dict, tuple: [list, list] }))
})

test('integers of every length are rounded once, to the nearest number', () => {
  fc.assert(
    fc.property(fc.bigInt({ min: -(2n ** 1000n), max: 2n ** 1000n }), fc.nat(1000), (big, shift) => {
      const integer = big >> BigInt(shift)
      const length = Math.ceil((integer.toString(2).length + 1) / 8)
      const hex = BigInt.asUintN(8 * length, integer)
        .toString(16)
        .padStart(2 * length, '0')
      const long1 = [0x80, 2, 0x8a, length, ...Buffer.from(hex, 'hex').reverse(), STOP]
      assert.equal(readPickle(Buffer.from(long1)), Number(integer))
    }),
  )
  refused([0x80, 2, 0x8a, 255, ...new Array(255).fill(0x7f), STOP], /an integer of 255 bytes at byte 2/)
})

test('a pickle with code is refused with the name of the function', () => {
  const hostile = [
    'gAJ9cQBYAQAAAHhxAWNwb3NpeApzeXN0ZW0KcQJYBwAAAGVjaG8gaGlxA4VxBFJxBXMu',
    'gASVKQAAAAAAAAB9lIwBeJSMBXBvc2l4lIwGc3lzdGVtlJOUjAdlY2hvIGhplIWUUpRzLg==',
  ]
  for (const base64 of hostile) {
    refused(
      Buffer.from(base64, 'base64'),
      /^refused: this pickle would call posix\.system; a memory snapshot holds only data/,
    )
  }
  refused([0x80, 2, MARK, ...text('ios\nsystem\n.')], /would call os\.system;/)
  refused([0x80, 2, ...text('c\u001b[31mos\nsystem\n.')], /would call \?\[31mos\.system;/)
  for (const op of [0x93, 0x52, 0x62, 0x6f, 0x81, 0x92, 0x82, 0x83, 0x84, 0x50, 0x51]) {
    refused(
      [0x80, 2, 0x7d, 0x7d, op, 1, 1, 1, 1, STOP],
      /^refused: this pickle would call code; a memory snapshot holds only data \([A-Z0-9_]+\) at byte 4$/,
    )
  }
})

test('every other opcode is refused as unknown', () => {
  const python0 = 'KGRwMApWeApwMQpjcG9zaXgKc3lzdGVtCnAyCihWZWNobyBoaQpwMwp0cDQKUnA1CnMu'
  refused(Buffer.from(python0, 'base64'), /0x64 is no opcode of a memory snapshot, at byte 1/)
  refused(Buffer.from('gASVBwAAAAAAAABDA2FiY5Qu', 'base64'), /0x43 is no opcode/)
})

test('a pickle that no writer would write is refused with its offset', () => {
  const start = [0x80, 4]
  refused([0x80, 1, NONE, STOP], /pickle protocol 1; 2 to 5 are read, at byte 0/)
  refused([0x80, 6, NONE, STOP], /pickle protocol 6/)
  refused([...start, STOP], /stops with values left over at byte 2/)
  refused([...start, NONE, NONE, STOP], /stops with values left over/)
  refused([...start, MARK, NONE, STOP], /stops with values left over/)
  refused([...start, NONE, STOP, NONE], /1 bytes follow the end of the pickle at byte 4/)
  refused([...start, 0x68, 0, STOP], /memo entry 0 was never stored, at byte 2/)
  refused([...start, 0x6a, 255, 255, 255, 255, STOP], /memo entry 4294967295 was never stored/)
  refused([...start, NONE, 0x71, 1, STOP], /memo entry 1 leaves a gap, at byte 3/)
  refused([...start, NONE, 0x72, 255, 255, 255, 255, STOP], /memo entry 4294967295 leaves a gap/)
  refused([...start, MEMOIZE, STOP], /nothing to memoize/)
  refused([...start, MARK, MEMOIZE, STOP], /nothing to memoize/)
  for (const op of text('aes')) refused([...start, op, STOP], /items without/)
  refused([...start, ...text('u.')], /items without a dictionary at byte 2/)
  refused([...start, ...text(']N(aeN.')], /items without a list/)
  refused([...start, ...text('N(Ne.')], /something that is no list/)
  refused([...start, ...text(')Na.')], /something that is no list/)
  refused([...start, ...text('N(NNu.')], /key that is not text/)
  refused([...start, 0x4e, MARK, 0x8c, 1, 0x61, NONE, ...text('u.')], /something that is no dictionary/)
  refused([...start, 0x7d, MARK, 0x8c, 1, 0x61, ...text('u.')], /a key without a value/)
  refused([...start, ...text('t.')], /a tuple without its beginning/)
  refused([...start, 0x85, STOP], /a tuple without its items/)
  refused([...start, 0x5d, MEMOIZE, MARK, 0x68, 0, ...text('e.')], /a list that holds itself/)
  refused([...start, 0x7d, MEMOIZE, MARK, 0x8c, 1, 0x61, 0x68, 0, ...text('u.')], /a dictionary that holds itself/)
})

test('lengths are compared with the file before memory is allocated', () => {
  const huge = [255, 255, 255, 255, 255, 255, 255, 127]
  for (const op of [0x8d, 0x96, 0x95]) refused([0x80, 5, op, ...huge, STOP], /truncated/)
  refused([0x80, 4, 0x58, 255, 255, 255, 255, STOP], /truncated/)
})

test('a file of opening brackets only ends soon, in an error', () => {
  const many = (...bytes: number[]) =>
    Buffer.concat([Buffer.from([0x80, 4, NONE]), Buffer.alloc(1 << 20, Buffer.from(bytes))])
  refused(many(MARK), /containers more than 1000 deep at byte 1003/)
  refused(many(0x85), /more containers than a snapshot of this size has/)
  refused(many(0x5d), /more values waiting than a snapshot of this size has/)
  refused(many(NONE), /more values waiting/)
  refused(many(MEMOIZE), /more memo entries than a snapshot of this size has/)
  refused(many(0x5d, NONE, 0x61), /more (containers|values waiting) than/)
})

test('the caller makes the value of a dictionary or a list', () => {
  const point = { x: 1, y: 2 }
  const read = readPickle(writePickle({ points: [point, point], empty: [{}, []] }), {
    dictionary: (items, from, to) => (items[from] === 'x' ? `point ${items[from + 1]} ${items[to - 1]}` : undefined),
    list: (items, from, to) => (to - from === 2 && items[from] === items[to - 1] ? `two of ${items[from]}` : undefined),
  })
  assert.deepEqual(read, bare({ points: 'two of point 1 2', empty: [{}, []] }))
})

test('progress is reported while a large file is read', () => {
  const bytes = writePickle(Array.from({ length: 50_000 }, (_, i) => ({ text: `a text with the number ${i} in it` })))
  const told: number[] = []
  readPickle(bytes, { onProgress: read => told.push(read) })
  assert(told.length >= 2)
  assert.deepEqual(
    told,
    [...told].sort((a, b) => a - b),
  )
  assert(told[told.length - 1] <= bytes.length)
})

test('values other than data cannot be written', () => {
  for (const value of [undefined, 1n, () => 1, Symbol('x')]) assert.throws(() => writePickle([value]), TypeError)
})
