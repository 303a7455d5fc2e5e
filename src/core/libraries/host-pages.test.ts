// The pages of host memory. Where this host has one NUMA node, nothing is bound.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Worker } from 'node:worker_threads'
import { MiB } from '../base/bytes.js'
import { HostPages, parseNodes } from './host-pages.js'
import { passesDescriptors } from './system-calls.js'

const skip = !passesDescriptors() && 'needs Linux on x64 or arm64'

test('lists of nodes are read', () => {
  const lists: [string, number[]][] = [
    ['0\n', [0]],
    ['0-3\n', [0, 1, 2, 3]],
    ['0-1,4,8-9\n', [0, 1, 4, 8, 9]],
    ['\n', []],
  ]
  for (const [text, nodes] of lists) assert.deepEqual(parseNodes(text), nodes, text)
})

test('memory is filled in another thread, with zeros and to the last byte', { skip }, async () => {
  const pages = HostPages.open()
  const whole = new Uint8Array(4 * MiB).fill(7)
  const host = whole.subarray(1, -1)
  pages.wantHuge(host)
  await pages.fill(host)
  assert.ok(host.every(byte => byte === 0))
  assert.deepEqual([whole[0], whole.at(-1)], [7, 7])
})

test('memory is bound to a node of this host, and to no other', { skip }, () => {
  const pages = HostPages.open()
  const host = new Uint8Array(4 * MiB).fill(7)
  assert.equal(pages.bind(host, 10_000), false)
  assert.equal(pages.bind(host, -1), false)
  for (const node of pages.nodes) {
    pages.bind(host, node) // refused in some containers
    pages.unbind(host)
  }
  assert.ok(
    host.every(byte => byte === 7),
    'the contents stay',
  )
})

test('a worker ends while its memory is filled, once that is done', { skip }, async () => {
  const program = `
    import { parentPort } from 'node:worker_threads'
    import { HostPages } from ${JSON.stringify(new URL('host-pages.js', import.meta.url).href)}
    const pages = HostPages.open()
    void pages.fill(new Uint8Array(64 * 2 ** 20))
    parentPort.postMessage('begun')`
  const worker = new Worker(new URL(`data:text/javascript,${encodeURIComponent(program)}`))
  await new Promise((resolve, reject) => worker.once('message', resolve).once('error', reject))
  assert.equal(await worker.terminate(), 1)
})
