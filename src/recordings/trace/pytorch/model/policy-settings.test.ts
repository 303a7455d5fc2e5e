// What each setting changes in the models. settings-recordings.test.ts compares them with PyTorch.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { MiB } from '../../../../core/base/bytes.js'
import { ExpandablePolicy } from './expandable-policy.js'
import { PytorchPolicy } from './pytorch-policy.js'
import { parsePytorchSettings } from './pytorch-settings.js'

const policyWith = (text: string, limitBytes = Infinity) =>
  new PytorchPolicy({ settings: parsePytorchSettings(text), limitBytes })

test('a list of divisions rounds each interval in its own way', () => {
  const policy = policyWith('roundup_power2_divisions:[64:2,128:8]')
  assert.equal(policy.allocate(33 * MiB, 0)!.bytes, 48 * MiB)
  assert.equal(policy.allocate(129 * MiB, 0)!.bytes, 144 * MiB)
  assert.equal(policy.allocate(300 * MiB + 1, 0)!.bytes, 300 * MiB + 512)
})

test('a block above the split size is not split, and serves no smaller request', () => {
  const policy = policyWith('max_split_size_mb:64')
  const large = policy.allocate(100 * MiB, 0)!
  policy.release(large)
  assert.notEqual(policy.allocate(63 * MiB, 0)!.address, large.address)
  const near = policy.allocate(81 * MiB, 0)!
  assert.deepEqual([near.address, near.bytes], [large.address, 100 * MiB])
  policy.release(near)
  assert.notEqual(policy.allocate(80 * MiB, 0)!.address, large.address)
})

test('a larger rounding lets a block serve a much smaller request', () => {
  const policy = policyWith('max_split_size_mb:64,max_non_split_rounding_mb:40')
  const large = policy.allocate(100 * MiB, 0)!
  policy.release(large)
  assert.equal(policy.allocate(66 * MiB, 0)!.address, large.address)
})

test('at the limit, oversize blocks are given back first, and then no retry is needed', () => {
  const policy = policyWith('max_split_size_mb:64', 300 * MiB)
  const blocks = [90, 150].map(size => policy.allocate(size * MiB, 0)!)
  const small = policy.allocate(20 * MiB, 0)!
  policy.release(small)
  for (const block of blocks) policy.release(block)
  assert(policy.allocate(120 * MiB, 0) !== null)
  assert.equal(policy.retries, 0)
  assert.equal(policy.reservedBytes, (120 + 90 + 20) * MiB, 'the least block that is enough goes')
})

test('at the limit, oversize blocks from the largest on make room together', () => {
  const policy = policyWith('max_split_size_mb:64', 300 * MiB)
  for (const block of [70, 90, 100].map(size => policy.allocate(size * MiB, 0)!)) policy.release(block)
  assert(policy.allocate(180 * MiB, 0) !== null)
  assert.equal(policy.retries, 0)
  assert.equal(policy.reservedBytes, (70 + 180) * MiB)
})

test('without room, all free segments are given back, and the retry is counted', () => {
  const policy = policyWith('', 100 * MiB)
  let synchronized = 0
  const waiting = new PytorchPolicy({ limitBytes: 100 * MiB, onSynchronize: () => synchronized++ })
  for (const each of [policy, waiting]) {
    each.release(each.allocate(60 * MiB, 0)!)
    assert.equal(each.allocate(80 * MiB, 0)!.bytes, 80 * MiB)
    assert.equal(each.allocate(80 * MiB, 0), null)
    assert.equal(each.retries, 2)
  }
  assert.equal(synchronized, 2)
})

test('above the threshold, segments that were idle for longer than the mean are given back', () => {
  const policy = policyWith('garbage_collection_threshold:0.5', 300 * MiB)
  const [old, recent] = [40, 42].map(size => policy.allocate(size * MiB, 0)!)
  policy.release(old)
  for (let search = 0; search < 10; search++) policy.release(policy.allocate(2 * MiB, 1)!)
  policy.release(recent)
  policy.allocate(60 * MiB, 0)
  assert.equal(policy.reservedBytes, (40 + 20 + 42 + 60) * MiB, 'below the threshold nothing is given back')
  policy.allocate(50 * MiB, 0)
  assert.equal(policy.reservedBytes, (20 + 42 + 60 + 50) * MiB)
  assert.equal(policy.retries, 0)
})

test('no garbage of a private pool is collected', () => {
  const policy = policyWith('garbage_collection_threshold:0.5', 300 * MiB)
  policy.release(policy.allocate(160 * MiB, 0, 1)!)
  policy.allocate(20 * MiB, 0)
  policy.allocate(20 * MiB, 0)
  assert.equal(policy.reservedBytes, 200 * MiB)
})

test('without a limit no garbage is collected', () => {
  const policy = policyWith('garbage_collection_threshold:0.5')
  for (const size of [40, 42, 44]) policy.release(policy.allocate(size * MiB, 0)!)
  assert.equal(policy.reservedBytes, 126 * MiB)
})

test('large_segment_size_mb sets the segments of requests below 10 MiB, and the pages of expandable ones', () => {
  assert.equal(reservedAfter(policyWith('large_segment_size_mb:40')), 40 * MiB)
  const settings = parsePytorchSettings('large_segment_size_mb:40')
  assert.equal(reservedAfter(new ExpandablePolicy({ settings })), 40 * MiB)
})

test('with expandable segments the limit is compared with the bytes of a segment, not of pages', () => {
  const policy = new ExpandablePolicy({ limitBytes: 24 * MiB })
  assert(policy.allocate(21 * MiB, 0) !== null)
  assert.equal(policy.reservedBytes, 40 * MiB)
  assert.equal(policy.allocate(30 * MiB, 0), null)
  assert.equal(policy.retries, 1)
})

test('a large free range of an expandable segment serves no small request with a split size, but extends', () => {
  const policy = new ExpandablePolicy({ settings: parsePytorchSettings('max_split_size_mb:64') })
  const [large] = [policy.allocate(100 * MiB, 0)!, policy.allocate(100 * MiB, 0)!]
  policy.release(large)
  assert.equal(policy.allocate(30 * MiB, 0)!.address, large.address + 200 * MiB)
})

function reservedAfter(policy: PytorchPolicy | ExpandablePolicy): number {
  policy.allocate(3 * MiB, 0)
  return policy.reservedBytes
}
