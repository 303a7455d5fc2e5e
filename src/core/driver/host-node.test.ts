// The NUMA node of pinned memory: the device's own, or the choice of the program.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Context } from './context.js'
import { nodeOf, ownNode } from './host-node.js'
import type { SimulatedOptions } from './simulated/options.js'
import { SimulatedDriver } from './simulated/simulated-driver.js'

function open(options: SimulatedOptions): { driver: SimulatedDriver; context: Context } {
  const driver = new SimulatedDriver(options)
  driver.cuInit()
  return { driver, context: Context.open(driver, 0) }
}

test("the device's own node is the default, and a program can name others", () => {
  const { driver, context } = open({ numaNodes: 3 })
  assert.equal(ownNode(context), 2)
  assert.deepEqual([nodeOf(context, undefined), nodeOf(context, 0), nodeOf(context, 2)], [2, 0, 2])
  assert.equal(driver.calls.get('cuDeviceGetAttribute'), 1, 'the driver is asked once')
})

test('on a host without nodes memory is not bound', () => {
  const { context } = open({ numaNodes: 0 })
  assert.equal(nodeOf(context, undefined), -1)
})

test('a driver that does not tell the node is asked again later', () => {
  const { driver, context } = open({ numaNodes: 2 })
  driver.failCall({ call: 'cuDeviceGetAttribute', nth: 1, code: 1 })
  assert.deepEqual([ownNode(context), ownNode(context)], [-1, 1])
})

test('a device whose node has no memory has none of its own', () => {
  const { driver, context } = open({ numaNodes: 2 })
  driver.hostNodes = () => [0]
  assert.equal(ownNode(context), -1)
})

test('one warning says that the system refuses to bind memory, to named nodes as well', async () => {
  const warnings: string[] = []
  const listener = ({ name, message }: Error) => warnings.push(`${name}: ${message}`)
  process.on('warning', listener)
  const { context } = open({ numaNodes: 2, numaBinding: false })
  assert.equal(ownNode(context), -1)
  await new Promise(resolve => setImmediate(resolve))
  assert.deepEqual(warnings, [], 'no program has asked for a node yet')
  for (const wanted of [undefined, 0, undefined]) assert.equal(nodeOf(context, wanted), -1)
  await new Promise(resolve => setImmediate(resolve))
  process.off('warning', listener)
  assert.equal(warnings.length, 1)
  assert.match(warnings[0], /^PoolWarning: .* NUMA node, .*SYS_NICE/)
})

test('all memory of a host with one node lies there, and is not bound', () => {
  const { context } = open({ numaNodes: 1, numaBinding: false })
  assert.deepEqual([ownNode(context), nodeOf(context, 0)], [0, 0])
})

test('memory that was bound for a trial is not bound any more', () => {
  const { driver, context } = open({ numaNodes: 2 })
  const tried: ArrayBufferView[] = []
  const { placeHost } = driver
  driver.placeHost = (host, node) => {
    tried.push(host)
    return placeHost.call(driver, host, node)
  }
  assert.equal(ownNode(context), 1)
  assert.deepEqual(
    tried.map(host => driver.hostNodeOf(host)),
    [-1],
  )
})
