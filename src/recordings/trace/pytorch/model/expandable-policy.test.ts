import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { KiB, MiB } from '../../../../core/base/bytes.js'
import { ExpandablePolicy } from './expandable-policy.js'
import type { PolicyBlock } from './policy-blocks.js'

test('small blocks get pages of 2 MiB, large ones pages of 20 MiB, in one segment each', () => {
  const policy = new ExpandablePolicy()
  const small = policy.allocate(512, 0)!
  assert.equal(policy.reservedBytes, 2 * MiB)
  const large = policy.allocate(MiB + 512, 0)!
  assert.equal(policy.reservedBytes, 22 * MiB)
  assert.equal(policy.allocate(MiB, 0)!.address, small.address + 512)
  assert.equal(policy.allocate(30 * MiB, 0)!.address, large.address + large.bytes)
  assert.equal(policy.reservedBytes, 42 * MiB, 'free memory at the end counts towards the request')
  assert.equal(policy.driver.calls['cuMemAddressReserve'], 2)
})

test('streams share no memory', () => {
  const policy = new ExpandablePolicy()
  const block = policy.allocate(1000, 0)!
  policy.release(block)
  policy.allocate(1000, 1)
  assert.equal(policy.reservedBytes, 4 * MiB)
  assert.equal(policy.allocate(1000, 0)!.address, block.address)
})

test('large blocks split at 512 bytes, too', () => {
  const policy = new ExpandablePolicy()
  const first = policy.allocate(20 * MiB - 2 * KiB, 0)!
  assert.equal(first.bytes, 20 * MiB - 2 * KiB)
  assert.equal(policy.allocate(2 * MiB, 0)!.address, first.address + first.bytes)
})

test('a larger free block is taken before a smaller one that can grow', () => {
  const policy = new ExpandablePolicy()
  const hole = policy.allocate(15 * MiB, 0)!
  const end = policy.allocate(15 * MiB, 0)!
  assert.equal(policy.reservedBytes, 40 * MiB, '10 MiB are free at the end')
  policy.release(hole)
  const block = policy.allocate(8 * MiB, 0)!
  assert.equal(block.address, hole.address)
  assert.equal(policy.allocate(9 * MiB, 0)!.address, end.address + end.bytes, 'the hole is too small now')
})

test('when the capacity is spent, free whole pages are unmapped, and mapped again where they are needed', () => {
  const policy = new ExpandablePolicy({ capacityBytes: 60 * MiB })
  const [first, second] = [policy.allocate(30 * MiB, 0)!, policy.allocate(15 * MiB, 0)!]
  policy.release(first)
  assert.equal(policy.allocate(50 * MiB, 0), null, 'too little is free')
  assert.equal(policy.driver.calls['cuMemUnmap'], 1, 'the other two pages are partly in use')
  assert.equal(policy.reservedBytes, 40 * MiB)
  policy.release(second)
  assert.equal(policy.allocate(50 * MiB, 0)!.address, first.address)
  assert.equal(policy.peakReservedBytes, 60 * MiB)
})

/** The settings of a reserve of `mebibytes`. */
const reserve = (mebibytes: number) => ({ settings: { expandableReserveBytes: mebibytes * MiB } })

test('a stream whose segment has no addresses left gets a further one of the same length', () => {
  const policy = new ExpandablePolicy(reserve(50))
  const [first, second] = [policy.allocate(40 * MiB, 0)!, policy.allocate(40 * MiB, 0)!]
  assert.equal(second.address, first.address + 60 * MiB, '50 MiB are rounded up to three pages')
  assert.equal(policy.allocate(15 * MiB, 0)!.address, first.address + 40 * MiB, 'the first segment has the room')
  assert.equal(policy.driver.calls['cuMemAddressReserve'], 2)
})

test('a request that no segment can hold fails, after free memory was given back', () => {
  const policy = new ExpandablePolicy(reserve(50))
  policy.release(policy.allocate(60 * MiB, 0)!)
  assert.equal(policy.allocate(60 * MiB + 512, 0), null)
  assert.deepEqual([policy.reservedBytes, policy.retries], [0, 1])
  assert.ok(policy.allocate(MiB, 0), 'small blocks have pages of 2 MiB')
  assert.equal(new ExpandablePolicy(reserve(1)).allocate(MiB, 0)!.bytes, MiB)
})

test('memory from before may be longer than the reserve', () => {
  const policy = new ExpandablePolicy(reserve(20))
  policy.adoptSegment(2 ** 40, 100 * MiB, 0, [])
  assert.equal(policy.allocate(80 * MiB, 0)!.address, 2 ** 40)
})

test('a segment without memory ends', () => {
  const policy = new ExpandablePolicy({ capacityBytes: 60 * MiB })
  policy.release(policy.allocate(30 * MiB, 0)!)
  policy.releaseFree()
  assert.equal(policy.reservedBytes, 0)
  assert.equal(policy.driver.calls['cuMemAddressFree'], 1)
  const base = 2 ** 40
  assert.equal(policy.allocate(30 * MiB, 0, 0, () => base)!.address, base)
})

test('an unmap of the recording gives memory back only if it covers the free pages exactly', () => {
  const policy = new ExpandablePolicy()
  const base = 2 ** 40
  const low = policy.allocate(15 * MiB, 0, 0, () => base)!
  const high = policy.allocate(70 * MiB, 0)!
  assert.equal(policy.releaseAt(base + 20 * MiB, 40 * MiB), false, 'it is in use')
  policy.release(high)
  assert.equal(policy.releaseAt(base + 20 * MiB, 40 * MiB), false, 'more is free')
  assert.equal(policy.releaseAt(base + 20 * MiB, 80 * MiB), true)
  assert.equal(policy.reservedBytes, 20 * MiB)
  policy.release(low)
  assert.equal(policy.allocate(18 * MiB, 0)!.address, base)
})

test('adopted ranges of one stream form one segment, and the pages between them can be mapped', () => {
  const policy = new ExpandablePolicy()
  const base = 2 ** 40
  const [used] = policy.adoptSegment(base, 20 * MiB, 0, [{ address: base + 2 * MiB, bytes: 10 * MiB }])
  policy.adoptSegment(base + 60 * MiB, 20 * MiB, 0, [{ address: base + 60 * MiB, bytes: 20 * MiB }])
  assert.equal(policy.reservedBytes, 40 * MiB)
  assert.equal(policy.allocate(2 * MiB, 0)!.address, base)
  assert.equal(policy.allocate(40 * MiB, 0)!.address, base + 12 * MiB)
  assert.equal(policy.reservedBytes, 80 * MiB)
  policy.release(used)
  assert.equal(policy.allocate(10 * MiB, 0)!.address, used.address)
})

test('blocks never overlap, and all memory comes back', () => {
  const step = fc.record({
    bytes: fc.integer({ min: 1, max: 30 * MiB }),
    small: fc.boolean(),
    stream: fc.nat(2),
    free: fc.nat(),
    release: fc.nat(9),
  })
  fc.assert(
    fc.property(fc.array(step, { minLength: 1, maxLength: 60 }), fc.boolean(), (steps, limited) => {
      const policy = new ExpandablePolicy(limited ? { capacityBytes: 100 * MiB } : {})
      const live: PolicyBlock[] = []
      for (const { bytes, small, stream, free, release } of steps) {
        const asked = small ? Math.ceil(bytes / 64) : bytes
        const block = policy.allocate(asked, stream)
        assert(limited || block !== null)
        if (block === null) continue
        assert(block.bytes >= asked && block.stream === stream)
        for (const other of live) {
          assert(other.address + other.bytes <= block.address || block.address + block.bytes <= other.address)
        }
        live.push(block)
        assert(live.reduce((sum, each) => sum + each.bytes, 0) <= policy.reservedBytes)
        assert(!limited || policy.reservedBytes <= 100 * MiB)
        if (free % 3 > 0) policy.release(live.splice(free % live.length, 1)[0])
        if (release === 0) policy.releaseFree()
      }
      for (const block of live) policy.release(block)
      policy.releaseFree()
      assert.equal(policy.reservedBytes, 0)
      assert.equal(policy.driver.calls['cuMemUnmap'], policy.driver.calls['cuMemMap'])
    }),
  )
})
