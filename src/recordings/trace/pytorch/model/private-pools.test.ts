import assert from 'node:assert/strict'
import { test } from 'node:test'
import { MiB } from '../../../../core/base/bytes.js'
import { ExpandablePolicy } from './expandable-policy.js'
import { PytorchPolicy } from './pytorch-policy.js'

for (const Policy of [PytorchPolicy, ExpandablePolicy]) {
  test(`${Policy.name}: the default pool and private ones never serve each other`, () => {
    const policy = new Policy()
    for (const pool of [0, 1, 2]) policy.release(policy.allocate(40 * MiB, 0, pool)!)
    assert.equal(policy.reservedBytes, 120 * MiB)
    for (const pool of [0, 1, 2]) policy.release(policy.allocate(40 * MiB, 0, pool)!)
    assert.equal(policy.reservedBytes, 120 * MiB)
    assert.deepEqual(
      [0, 1, 3].map(pool => policy.needsMore(40 * MiB, 0, pool, 120 * MiB)),
      [false, false, true],
    )
  })

  test(`${Policy.name}: free memory of a private pool is given back only when nothing uses the pool any more`, () => {
    const policy = new Policy({ capacityBytes: 100 * MiB })
    policy.release(policy.allocate(40 * MiB, 0, 1)!)
    assert.deepEqual([policy.allocate(80 * MiB, 0), policy.idleBytes(), policy.reservedBytes], [null, 0, 40 * MiB])
    policy.unusedPools.add(1)
    assert.equal(policy.idleBytes(), 40 * MiB)
    assert(policy.allocate(80 * MiB, 0) !== null)
    assert.equal(policy.reservedBytes, 80 * MiB)
  })

  test(`${Policy.name}: memory from before serves its own pool`, () => {
    const policy = new Policy()
    const base = 2 ** 40
    policy.adoptSegment(base, 40 * MiB, 0, [], 1)
    assert.notEqual(policy.allocate(40 * MiB, 0)!.address, base)
    assert.equal(policy.allocate(40 * MiB, 0, 1)!.address, base)
  })
}
