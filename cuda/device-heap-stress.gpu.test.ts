// malloc and free in one kernel under heavy loads on a real GPU. Each thread writes words of its own all over its
// blocks, and finds them there before it frees. A process of its own runs the loads and prints a line of figures for
// each. Without a GPU it fails. STRESS_SECONDS lengthens each load, and STRESS_PROCESSES repeats them all.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { describe, it } from 'node:test'
import { fileURLToPath } from 'node:url'
import { GiB, KiB } from '../src/core/base/bytes.js'
import { controlPtx } from '../src/core/kernel/device-code.js'
import { openDevice } from '../src/index.js'
import { heapGeometry, SLOTS, SUPERBLOCK_BYTES } from '../src/kernel-memory/device-layout.js'
import { checkHeap } from '../src/kernel-memory/heap-check.js'
import { heapStats } from '../src/kernel-memory/heap-stats.js'
import { NO_TRIALS, trialsPtx } from './compile-ptx.js'

const SECONDS = Number(process.env['STRESS_SECONDS'] ?? 0.1)
const PROCESSES = Number(process.env['STRESS_PROCESSES'] ?? 1)
const MOST_HEAP_BYTES = 8 * GiB
const BLOCK = 256
const ROUNDS = 8
const START_MS = 60_000

interface Load {
  readonly least: number
  readonly most: number
  readonly threads: number
  /** blocks that a thread holds at a time */
  readonly places: 1 | 4
  readonly slots: number
}

const [FEW, MANY] = [2 ** 16, 2 ** 20]
const load = (least: number, most: number, threads: number, places: 1 | 4, slots = SLOTS): Load => ({
  least,
  most,
  threads,
  places,
  slots,
})
const LOADS: readonly Load[] = [
  load(16, 16, MANY, 1),
  load(64, 64, MANY, 1),
  load(64, 64, MANY, 4),
  load(1024, 1024, MANY, 1),
  load(1024, 1024, MANY, 4),
  load(4096, 4096, MANY, 1),
  load(8192, 8192, MANY, 1),
  load(16, 4096, MANY, 1),
  load(16, 4096, FEW, 4),
  load(16 * KiB, 16 * KiB, FEW, 1),
  load(16, 64 * KiB, FEW, 4),
  // With few slots most threads find them busy, and take superblocks for themselves.
  load(1024, 1024, MANY, 1, 1),
  load(8192, 8192, FEW, 1, 1),
  load(8192, 8192, MANY, 4, 4),
  load(16, 4096, FEW, 4, 1),
]

const nameOf = ({ least, most, threads, places, slots }: Load) =>
  `${least === most ? most : `${least} to ${most}`} bytes, ${threads} threads, ${places} held, ${slots} slots`

/** Runs each load for some seconds, and prints what its heap says afterwards. */
function runAll(seed: number): void {
  const device = openDevice(0)
  const pool = device.createPlainPool()
  const bytes = Math.min(MOST_HEAP_BYTES, Math.floor(device.memoryInfo().freeBytes / 2))
  const region = pool.allocate(bytes + SUPERBLOCK_BYTES)
  const heap = Math.ceil(region.ptr / SUPERBLOCK_BYTES) * SUPERBLOCK_BYTES
  const { superblocksAt, reserved } = heapGeometry(bytes)
  const faults = pool.allocate(4)
  faults.fill(0)
  const initialise = device.loadModule(controlPtx()).kernel('heap_initialise')
  const hold = device.loadModule(trialsPtx()!).kernel('hold')
  for (const load of LOADS) {
    const { least, most, threads, places, slots } = load
    initialise.launch({ grid: 256, block: BLOCK }, heap, heap + superblocksAt, reserved, reserved, slots - 1)
    const shape = { grid: threads / BLOCK, block: BLOCK }
    const sizes = [least, most, least === most ? 0 : 1]
    device.synchronize()
    const started = performance.now()
    let seconds = 0
    let launches = 0
    for (; launches === 0 || seconds < SECONDS; seconds = (performance.now() - started) / 1000) {
      hold.launch(shape, heap, ROUNDS, places, ...sizes, seed + launches++, faults)
      device.synchronize()
    }
    const copy = new Uint8Array(superblocksAt)
    device.driver.cuMemcpyDtoH(copy, heap)
    const found = figuresOf(copy, launches * threads * ROUNDS, seconds)
    const [wrongWords] = new Uint32Array(faults.readSync().buffer)
    console.log(JSON.stringify({ load: nameOf(load), ...found, wrongWords }))
  }
  device.close()
}

function figuresOf(copy: Uint8Array, asked: number, seconds: number) {
  const { allocations, failures, liveBlocks, usedBytes, doubleFrees, invalidFrees } = heapStats(copy)
  const millionCallsPerSecond = Math.round((2 * allocations) / seconds / 1e6)
  const counted = { doubleFrees, invalidFrees, liveBlocks, usedBytes, unanswered: asked - allocations - failures }
  return { allocations, failures, millionCallsPerSecond, ...counted, tables: complaintAbout(copy) }
}

function complaintAbout(copy: Uint8Array): string {
  try {
    checkHeap(copy)
    return 'whole'
  } catch (error) {
    return (error as Error).message
  }
}

const RIGHT = {
  doubleFrees: 0,
  invalidFrees: 0,
  liveBlocks: 0,
  usedBytes: 0,
  unanswered: 0,
  tables: 'whole',
  wrongWords: 0,
}

const seed = process.argv[2]
if (seed !== undefined) runAll(Number(seed))
else {
  describe(`the heap of kernels under loads of ${SECONDS} s`, { skip: trialsPtx() === null && NO_TRIALS }, () => {
    for (let number = 1; number <= PROCESSES; number++) {
      it(`no block is handed out twice, and at the end all memory is idle: process ${number}`, t => {
        const self = fileURLToPath(import.meta.url)
        const { stdout, stderr } = spawnSync(process.execPath, [self, `${1_000_000 * number}`], {
          encoding: 'utf8',
          timeout: START_MS + 2000 * SECONDS * LOADS.length,
          killSignal: 'SIGKILL',
        })
        const lines = stdout.split('\n').filter(line => line.startsWith('{'))
        for (const line of lines) t.diagnostic(line)
        const taken = lines.reduce((sum, line) => sum + JSON.parse(line).allocations, 0)
        t.diagnostic(`process ${number}: ${taken} allocations`)
        for (const line of lines) {
          const { load, allocations, failures: _, millionCallsPerSecond: __, ...wrong } = JSON.parse(line)
          assert.ok(allocations > 0, load)
          assert.deepEqual(wrong, RIGHT, load)
        }
        assert.equal(lines.length, LOADS.length, `the process ended early: ${stderr}`)
      })
    }
  })
}
