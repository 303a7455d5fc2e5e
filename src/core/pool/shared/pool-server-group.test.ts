import assert from 'node:assert/strict'
import { test } from 'node:test'
import { MiB } from '../../base/bytes.js'
import { TestDevice } from '../pool.fixture.js'
import { PoolServerGroup } from './pool-server-group.js'

test('a pool server that fails leaves the others of its thread running', () => {
  const device = new TestDevice()
  const [lost, other] = [device.createSharedPool(), device.createSharedPool()]
  let failures = 0
  const servers = new PoolServerGroup(() => failures++)
  for (const { server } of [lost, other]) servers.add(server)
  lost.server.serve = () => {
    throw new RangeError('as it happened')
  }
  servers.serve()
  assert.deepEqual([servers.count, failures], [1, 1])
  lost.server.serve = () => 0
  assert.throws(() => lost.pool.allocate(1 * MiB), { name: 'RangeError', message: 'as it happened' })
  other.pool.allocate(1 * MiB).free()
  other.pool.close()
  servers.serve()
  assert.equal(servers.count, 0)
})

test('three idle pools cost few wake-ups in an hour, and none when only their maker uses them', () => {
  const device = new TestDevice()
  const pools = [0, 1, 2].map(() => device.createSharedPool())
  const servers = new PoolServerGroup(() => {})
  for (const { server } of pools) servers.add(server)
  const attached = pools[0].attach()
  const wakeUps = (from: number) => {
    let count = 0
    for (let now = from; now < from + 3_600_000; now += servers.serve(now)) count++
    return count
  }
  const busy = wakeUps(1e9)
  assert.ok(busy > 300 && busy < 400, `${busy} wake-ups`)
  attached.close()
  assert.ok(wakeUps(2e9) <= 1)
})
