import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { KiB, MiB } from '../../../../core/base/bytes.js'
import { pytorchSegmentBytes } from './placement-rules.js'
import { type PolicyBlock, roundPytorchBytes } from './policy-blocks.js'
import { PytorchPolicy } from './pytorch-policy.js'
import { parsePytorchSettings } from './pytorch-settings.js'

test('each request is rounded, and obtains a segment, as in PyTorch', () => {
  const cases = [
    [0, 512, 2 * MiB],
    [1, 512, 2 * MiB],
    [511, 512, 2 * MiB],
    [512, 512, 2 * MiB],
    [513, 1024, 2 * MiB],
    [1000, 1024, 2 * MiB],
    [1024, 1024, 2 * MiB],
    [1537, 2048, 2 * MiB],
    [1_048_576, 1_048_576, 2 * MiB],
    [1_048_577, 1_049_088, 20 * MiB],
    [2_097_152, 2_097_152, 20 * MiB],
    [10_485_248, 10_485_248, 20 * MiB],
    [10_485_759, 10_485_760, 10 * MiB],
    [10_485_761, 10_486_272, 12 * MiB],
    [12_582_913, 12_583_424, 14 * MiB],
  ]
  for (const [bytes, rounded, segment] of cases) {
    assert.equal(roundPytorchBytes(bytes), rounded, `${bytes}`)
    assert.equal(pytorchSegmentBytes(rounded), segment, `${bytes}`)
    const policy = new PytorchPolicy()
    policy.allocate(bytes, 0)
    assert.equal(policy.reservedBytes, segment, `${bytes}`)
  }
})

test('with divisions, requests are rounded to parts of a power of two', () => {
  const cases = [
    [1200, 4, 1536],
    [2048, 4, 2048],
    [2049, 4, 2560],
    [4097, 8, 4608],
    [5000, 8, 5120],
    [84 * MiB, 4, 96 * MiB],
    [84 * MiB, 8, 88 * MiB],
    [400 * MiB, 2, 512 * MiB],
    [512 * MiB, 4, 512 * MiB],
  ]
  for (const [bytes, divisions, rounded] of cases) {
    const settings = parsePytorchSettings(`roundup_power2_divisions:${divisions}`)
    assert.equal(new PytorchPolicy({ settings }).allocate(bytes, 0)?.bytes, rounded, `${bytes} in ${divisions}`)
  }
})

test('the smallest block that fits is taken, at the lowest address', () => {
  const policy = new PytorchPolicy()
  const blocks = [4, 2, 3, 2, 5].map(units => policy.allocate(units * 512, 0)!)
  const between = [1, 1, 1, 1].map(() => policy.allocate(512, 0)!)
  assert.equal(between[0].address, blocks[4].address + 5 * 512)
  policy.release(blocks[0])
  policy.release(blocks[3])
  const two = policy.allocate(2 * 512, 0)!
  assert.equal(two.address, blocks[3].address, 'the exact one before the larger one')
  policy.release(two)
  assert.equal(policy.allocate(3 * 512, 0)!.address, blocks[0].address)
})

test('small blocks split at 512 bytes, large ones only above 1 MiB', () => {
  const policy = new PytorchPolicy()
  const small = policy.allocate(2 * MiB - 512 - MiB, 0)!
  assert.equal(small.bytes, MiB - 512)
  assert.equal(policy.allocate(MiB, 0)!.address, small.address + MiB - 512)
  const large = policy.allocate(19 * MiB, 0)!
  assert.equal(large.bytes, 20 * MiB, 'one MiB is left with the block')
  assert.equal(new PytorchPolicy().allocate(19 * MiB - 512, 0)!.bytes, 19 * MiB - 512, 'more than one MiB is not')
  assert.equal(new PytorchPolicy().allocate(9 * MiB, 0)!.bytes, 9 * MiB)
  const shared = new PytorchPolicy()
  const first = shared.allocate(9 * MiB, 0)!
  assert.equal(shared.allocate(9 * MiB + 512, 0)!.address, first.address + 9 * MiB)
  assert.equal(shared.reservedBytes, 20 * MiB)
})

test('free neighbours merge, and an entirely free segment can be given back', () => {
  const policy = new PytorchPolicy()
  const blocks = Array.from({ length: 8 }, () => policy.allocate(256 * KiB, 0)!)
  const base = blocks[0].address
  for (const i of [1, 3, 2, 5, 4, 0, 7]) {
    policy.release(blocks[i])
    assert.equal(policy.releaseAt(base), false)
  }
  policy.release(blocks[6])
  assert.equal(policy.releaseAt(base + 512), false, 'no segment begins there')
  assert.equal(policy.releaseAt(base), true)
  assert.equal(policy.reservedBytes, 0)
  assert.equal(policy.peakReservedBytes, 2 * MiB)
  assert.equal(policy.releaseAt(base), false)
})

test('streams share no memory', () => {
  const policy = new PytorchPolicy()
  const block = policy.allocate(1000, 0)!
  policy.release(block)
  policy.allocate(1000, 1)
  assert.equal(policy.driver.calls['cuMemAlloc'], 2)
  assert.equal(policy.allocate(1000, 0)!.address, block.address)
})

test('with a capacity, free segments are given back before a request is refused', () => {
  const policy = new PytorchPolicy({ capacityBytes: 30 * MiB })
  const small = policy.allocate(512, 0)!
  const large = policy.allocate(20 * MiB, 0)!
  assert.equal(policy.allocate(10 * MiB, 0), null)
  policy.release(small)
  assert.notEqual(policy.allocate(10 * MiB, 0), null)
  assert.equal(policy.driver.calls['cuMemFree'], 1)
  assert.equal(policy.allocate(MiB, 1), null)
  policy.release(large)
  assert.notEqual(policy.allocate(MiB, 1), null)
  assert.equal(policy.peakReservedBytes, 30 * MiB)
})

test('memory between the blocks of an adopted segment is free', () => {
  const policy = new PytorchPolicy()
  const base = 1000 * MiB
  const used = [
    { address: base + 2 * MiB, bytes: 6 * MiB },
    { address: base + 8 * MiB, bytes: 5 * MiB },
  ]
  const [first, second] = policy.adoptSegment(base, 20 * MiB, 0, used)
  assert.deepEqual([first.address, first.bytes], [base + 2 * MiB, 6 * MiB])
  assert.deepEqual([second.address, second.bytes], [base + 8 * MiB, 5 * MiB])
  assert.equal(policy.driver.calls['cuMemAlloc'], 0)
  assert.equal(policy.allocate(2 * MiB, 0)!.address, base)
  assert.equal(policy.allocate(7 * MiB, 0)!.address, base + 13 * MiB)
  policy.release(first)
  policy.release(second)
  assert.equal(policy.allocate(11 * MiB, 0)!.address, base + 2 * MiB)
  assert.equal(policy.reservedBytes, 20 * MiB)
})

test('reconsidering a wrong placement enlarges the adopted block below it, up to its largest possible size', () => {
  const policy = new PytorchPolicy()
  const base = 1000 * MiB
  const adopted = { address: base, bytes: 4 * MiB, mostBytes: 5 * MiB }
  const [before] = policy.adoptSegment(base, 10 * MiB, 0, [adopted])
  const wrong = policy.allocate(5.5 * MiB, 0)!
  assert.equal(wrong.address, base + 4 * MiB)
  assert.equal(policy.reconsider(wrong, 5.5 * MiB), true)
  assert.equal(before.bytes, 4.5 * MiB + 512, 'the free block after it is one step too short')
  assert.notEqual(policy.allocate(5.5 * MiB, 0)!.address, base + 4 * MiB)
  const smaller = policy.allocate(4 * MiB, 0)!
  assert.equal(smaller.address, base + 4.5 * MiB + 512)
  assert.equal(policy.reconsider(smaller, 4 * MiB), false, 'so much was never left with a block')
  policy.release(smaller)
  policy.release(before)
  assert.equal(policy.allocate(10 * MiB, 0)!.address, base)
})

test('blocks never overlap, and all memory comes back', () => {
  const step = fc.record({
    bytes: fc.integer({ min: 1, max: 30 * MiB }),
    small: fc.boolean(),
    stream: fc.nat(2),
    free: fc.nat(),
  })
  fc.assert(
    fc.property(fc.array(step, { minLength: 1, maxLength: 60 }), steps => {
      const policy = new PytorchPolicy()
      const live: PolicyBlock[] = []
      for (const { bytes, small, stream, free } of steps) {
        const asked = small ? Math.ceil(bytes / 64) : bytes
        const block = policy.allocate(asked, stream)!
        assert(block.bytes >= asked && block.stream === stream)
        for (const other of live) {
          assert(other.address + other.bytes <= block.address || block.address + block.bytes <= other.address)
        }
        live.push(block)
        if (free % 3 > 0) policy.release(live.splice(free % live.length, 1)[0])
      }
      const reserved = policy.reservedBytes
      assert(live.reduce((sum, block) => sum + block.bytes, 0) <= reserved)
      for (const block of live) policy.release(block)
      assert.equal(policy.reservedBytes, reserved)
      policy.releaseFree()
      assert.equal(policy.reservedBytes, 0)
    }),
  )
})
