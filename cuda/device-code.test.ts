// The committed device code: the PTX is compiled from its source and assembles for the promised architectures, and
// the header has the layout that TypeScript reads. Tests that need the CUDA toolkit are skipped without it.

import assert from 'node:assert/strict'
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, describe, it } from 'node:test'
import { controlPtx, deviceIncludePath, SHIPPED_PTX } from '../src/core/kernel/device-code.js'
import { kernelsOf } from '../src/core/kernel/ptx.js'
import * as layout from '../src/kernel-memory/device-layout.js'
import { heapStats, statsBytes } from '../src/kernel-memory/heap-stats.js'
import { HeapTables, Place, runWord, smallWord } from '../src/kernel-memory/heap-tables.js'
import { compile, digestOf, readSource, runTool, trialsPtx } from './compile-ptx.js'

const folder = mkdtempSync(join(tmpdir(), 'cuda-mempool-code-'))
after(() => rmSync(folder, { recursive: true }))
const HEADER = readSource('cuda_mempool.cuh')
const NVCC = runTool('nvcc', '--version')
const skip = NVCC === null ? 'nvcc is not installed' : false
const skipAssembling = runTool('ptxas', '--version') === null ? 'ptxas is not installed' : false

/** Compiles text that includes the header; returns what the compiler says, or an empty text if it has no complaint. */
function complaintAbout(source: string, ...flags: string[]): string {
  const path = join(folder, 'source.cu')
  writeFileSync(path, `#include "cuda_mempool.cuh"\nusing namespace cuda_mempool;\n${source}`)
  const result = runTool(
    'nvcc',
    '-std=c++17',
    '-ptx',
    `-I${deviceIncludePath()}`,
    ...flags,
    path,
    '-o',
    join(folder, 'out'),
  )
  return result?.failed === false ? '' : `${result?.output}`
}

/** What ptxas says against PTX, or an empty text. */
function refusalOf(ptx: string, architecture: string): string {
  const path = join(folder, 'source.ptx')
  writeFileSync(path, ptx)
  // Without optimisation, which takes half of the time and finds no fault.
  const result = runTool('ptxas', '-O0', `-arch=${architecture}`, path, '-o', join(folder, 'out.cubin'))
  return result?.failed === false ? '' : `${result?.output}`
}

describe('the committed PTX', () => {
  const ptx = controlPtx()

  it('belongs to its source, and says what it needs', () => {
    assert.ok(ptx.includes(digestOf('control')), 'build again where nvcc is installed: cuda/control.ptx is out of date')
    assert.match(ptx, new RegExp(`^\\.version ${SHIPPED_PTX.version}$`, 'm'))
    assert.match(ptx, new RegExp(`^\\.target ${SHIPPED_PTX.target}$`, 'm'))
    const defined = [...readSource('control.cu').matchAll(/__global__ void (\w+)\(/g)].map(match => match[1])
    assert.deepEqual(
      kernelsOf(ptx)
        .map(kernel => kernel.name)
        .sort(),
      defined.sort(),
    )
  })

  it('is what this compiler makes of it', { skip }, t => {
    // Another compiler makes other code of the same source.
    if (!NVCC?.output.includes('release 13.0, V13.0.88')) return t.skip('it was made by nvcc 13.0.88')
    assert.equal(compile('control'), ptx)
  })

  for (const architecture of ['sm_75', 'sm_80', 'sm_90']) {
    it(`assembles for ${architecture}`, { skip: skipAssembling }, () => assert.equal(refusalOf(ptx, architecture), ''))
  }

  it('would not assemble under an older version', { skip: skipAssembling }, () => {
    const older = ptx.replace(`.version ${SHIPPED_PTX.version}`, '.version 6.2')
    assert.match(refusalOf(older, 'sm_75'), /6\.2 does not support/)
  })
})

// Newer architectures assemble code for the oldest.
it('the allocators need no more than the committed PTX', { skip: skip || skipAssembling }, () => {
  assert.equal(refusalOf(trialsPtx()!, 'sm_75'), '')
})

describe('the header', () => {
  it('is where the package says', () => assert.ok(existsSync(join(deviceIncludePath(), 'cuda_mempool.cuh'))))

  it('asserts the offsets that TypeScript reads by', () => {
    const asserted = (structure: string) => {
      const fields = HEADER.matchAll(
        new RegExp(`static_assert\\(__builtin_offsetof\\(${structure}, (\\w+)\\) == (\\d+)`, 'g'),
      )
      const bytes = new RegExp(`static_assert\\(sizeof\\(${structure}\\) == (\\d+)`).exec(HEADER)
      return {
        ...Object.fromEntries([...fields].map(([, name, at]) => [name, Number(at)])),
        byteLength: Number(bytes?.[1]),
      }
    }
    assert.deepEqual(asserted('DevicePool'), layout.DEVICE_POOL)
    assert.deepEqual(asserted('DeviceHeap'), layout.DEVICE_HEAP)
    assert.deepEqual(asserted('Stripe'), layout.STRIPE)
    assert.equal(asserted('SetCount').byteLength, layout.COUNT_BYTES)
    assert.equal(asserted('Record').byteLength, layout.RECORD_BYTES)
  })

  it('has the constants that TypeScript has', () => {
    const { CLASSES, LARGEST_BLOCK, SLOTS, STRIPES, GROUP, BATCH } = layout
    const constants = { CLASSES, LARGEST_BLOCK, SLOTS, STRIPES, GROUP, BATCH }
    for (const [name, value] of Object.entries(constants)) {
      assert.equal(Number(new RegExp(`constexpr u32 ${name} = (\\d+);`).exec(HEADER)?.[1]), value, name)
    }
  })

  it('compiles with those assertions, for every architecture, with and without traps', { skip }, () => {
    const sizes = Array.from({ length: layout.CLASSES }, (_, index) => layout.bytesOfClass(index))
    const records = [0, 1, 127, 128, 511, 512, 1000].map(superblock => {
      const record = (HeapTables.wordAt(superblock) - layout.DEVICE_HEAP.byteLength) / layout.RECORD_BYTES
      return `static_assert(recordOf(${superblock}) == ${record}, "");`
    })
    const source = `${sizes.map((bytes, index) => `static_assert(bytesOfClass(${index}) == ${bytes}, "");`).join('\n')}
      ${records.join('\n')}
      static_assert(SUPERBLOCK_BYTES == ${layout.SUPERBLOCK_BYTES} && BITMAP_BYTES == ${layout.BITMAP_BYTES}, "");
      static_assert(LARGE == ${layout.LARGE}, "");
      __global__ void kernel(DeviceHeap *heap, DeviceArena *arena) { heap->free(arena->allocate(1)); }`
    assert.equal(complaintAbout(source, '-arch=compute_75', '-Werror', 'all-warnings'), '')
    assert.equal(complaintAbout(source, '-arch=compute_90', '-DCUDA_MEMPOOL_DEBUG'), '')
    assert.match(complaintAbout('static_assert(sizeof(DeviceHeap) == 1, "");', '-arch=compute_75'), /static assertion/)
  })

  it('needs nothing of the host', () => assert.doesNotMatch(HEADER, /#include/))
})

describe('the layout', () => {
  it('every request gets the smallest class that holds it, and classes are four an octave', () => {
    const sizes = Array.from({ length: layout.CLASSES }, (_, index) => layout.bytesOfClass(index))
    assert.deepEqual(sizes.slice(0, 12), [16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256])
    assert.equal(sizes.at(-1), layout.LARGEST_BLOCK)
    for (let index = 1; index < sizes.length; index++) {
      assert.ok(sizes[index] > sizes[index - 1] && sizes[index] % 16 === 0)
      if (index >= 4) assert.ok(sizes[index] <= sizes[index - 1] * 1.25)
    }
  })

  it('a heap and its tables fit into what they are given, and one superblock more would not', () => {
    for (const bytes of [0, 65_536, 131_071, 131_072, 2 ** 20, 4 * 2 ** 20, 4 * 2 ** 30 + 12_345, 2 ** 37]) {
      const geometry = layout.heapGeometry(bytes)
      const { superblocksAt, reserved, slotMask } = geometry
      assert.ok(reserved === 0 || superblocksAt + reserved * layout.SUPERBLOCK_BYTES <= bytes)
      assert.ok(superblocksAt + (reserved + 1) * layout.SUPERBLOCK_BYTES > bytes)
      assert.ok(
        superblocksAt % layout.SUPERBLOCK_BYTES === 0 && slotMask < layout.SLOTS && (slotMask & (slotMask + 1)) === 0,
      )
      assert.equal(layout.superblocksWithin(geometry, bytes), reserved)
      assert.equal(layout.superblocksWithin(geometry, superblocksAt - 1), 0)
      assert.ok(bytes < 4 * 2 ** 20 || reserved * layout.SUPERBLOCK_BYTES > 0.95 * bytes)
    }
  })

  it('allocations are sums over the stripes, and live blocks follow from the words', () => {
    const reserved = 600
    const copy = new Uint8Array(statsBytes(reserved))
    const view = new DataView(copy.buffer)
    const { DEVICE_HEAP, STRIPE } = layout
    view.setUint32(DEVICE_HEAP.reserved, reserved, true)
    const at = (stripe: number, offset: number) => DEVICE_HEAP.stripes + stripe * STRIPE.byteLength + offset
    view.setBigInt64(at(0, STRIPE.allocations), 9n, true)
    view.setBigInt64(at(15, STRIPE.allocations), 2n, true)
    view.setBigInt64(at(2, STRIPE.failures), 2n ** 33n, true)
    view.setBigInt64(DEVICE_HEAP.doubleFrees, 6n, true)
    view.setUint32(DEVICE_HEAP.limit, 100, true)
    view.setUint32(DEVICE_HEAP.highest, 5, true)
    view.setUint32(DEVICE_HEAP.peak, 50, true)
    const words = [
      smallWord(3, Place.Listed, 1020),
      smallWord(31, Place.Loose, 6),
      smallWord(0, Place.Listed, 4096),
      runWord(3),
    ]
    for (const [superblock, [low, high]] of words.entries()) {
      view.setUint32(HeapTables.wordAt(superblock), low, true)
      view.setUint32(HeapTables.wordAt(superblock) + 4, high, true)
    }
    const expected = {
      allocations: 11,
      frees: 4,
      failures: 2 ** 33,
      doubleFrees: 6,
      invalidFrees: 0,
      liveBlocks: 7,
      liveBytes: 4 * 64 + 2 * 8192 + 3 * 65_536,
      usedBytes: 5 * 65_536,
      peakUsedBytes: 50 * 65_536,
      maxPoolBytes: 100 * 65_536,
    }
    assert.deepEqual(heapStats(copy), expected)
    assert.throws(() => heapStats(copy.subarray(0, copy.length - 1)), RangeError)
    assert.throws(() => heapStats(new Uint8Array(100)), RangeError)
  })

  it('a request beyond the limit of a pool does not count as taken', () => {
    const copy = new Uint8Array(layout.DEVICE_POOL.byteLength)
    const view = new DataView(copy.buffer)
    view.setBigUint64(layout.DEVICE_POOL.limit, 1024n, true)
    view.setBigUint64(layout.DEVICE_POOL.offset, 4096n, true)
    view.setBigUint64(layout.DEVICE_POOL.failures, 3n, true)
    assert.deepEqual(layout.bumpStats(copy), { takenBytes: 1024, peakBytes: 1024, maxPoolBytes: 1024, failures: 3 })
  })
})
