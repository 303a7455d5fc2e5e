import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, mkdtempSync, openSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import { Worker } from 'node:worker_threads'
import { hasEnded, isOver, markOfThread, sharingObstacle } from './os-thread.js'

const skip = markOfThread() === '' && 'this system does not tell which threads have ended'

test('a thread has ended when it is gone, or another thread has its number', { skip }, async () => {
  const mine = markOfThread()
  assert.equal(hasEnded(mine), false)
  const [thread, start] = mine.split(' ').map(Number)
  assert.equal(hasEnded(`${thread} ${start + 1} 0 0`), true)
  const code = `
    const { parentPort, workerData } = require('node:worker_threads')
    import(workerData).then(({ markOfThread }) => parentPort.postMessage(markOfThread()))
    parentPort.on('message', () => {})`
  const url = new URL('./os-thread.js', import.meta.url).href
  const worker = new Worker(code, { eval: true, workerData: url })
  const [other] = (await once(worker, 'message')) as [string]
  assert.notEqual(other, mine)
  assert.equal(hasEnded(other), false)
  await worker.terminate()
  assert.equal(hasEnded(other), true)
})

test('a terminated thread has ended though a pending file operation keeps it in the system', { skip }, async () => {
  const directory = mkdtempSync(join(tmpdir(), 'os-thread-'))
  const fifo = join(directory, 'fifo')
  execFileSync('mkfifo', [fifo])
  const code = `
    const { open } = require('node:fs')
    const { parentPort, workerData } = require('node:worker_threads')
    open(workerData.fifo, 'r', () => {})
    import(workerData.url).then(({ markOfThread }) => parentPort.postMessage(markOfThread()))
    parentPort.on('message', () => {})`
  const url = new URL('./os-thread.js', import.meta.url).href
  const worker = new Worker(code, { eval: true, workerData: { url, fifo } })
  const [mark] = (await once(worker, 'message')) as [string]
  assert.equal(hasEnded(mark), false)
  const terminated = worker.terminate()
  while (!hasEnded(mark)) await setImmediate()
  const [thread, start] = mark.split(' ').map(Number)
  assert.equal(isOver(thread, start), false, 'the system still has it')
  closeSync(openSync(fifo, 'w'))
  await terminated
  rmSync(directory, { recursive: true })
})

test('other runtimes than Node are refused by name, with the remedy', () => {
  assert.match(sharingObstacle({ node: '22.0.0', bun: '1.2.0' })!, /needs Node, not Bun; run the program with Node/)
  assert.match(sharingObstacle({ node: '22.0.0', deno: '2.1.0' })!, /needs Node, not Deno; run the program with Node/)
})

test('no thread has ended if the system does not tell', () => {
  assert.equal(hasEnded(''), false)
})
