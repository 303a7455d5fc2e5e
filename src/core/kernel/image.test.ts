// Cubins and fatbins: reading them, launches of their kernels on the simulated device, and images that are refused.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { FormatError } from '../base/errors.js'
import { Random } from '../base/random.js'
import { Context } from '../driver/context.js'
import { readCubin } from '../driver/cubin.js'
import { readFatbin } from '../driver/fatbin.js'
import { COMPRESSED_FATBIN, CUBIN_75, CUBIN_90, FATBIN } from '../driver/images.fixture.js'
import { SimulatedDriver } from '../driver/simulated/simulated-driver.js'
import { type LaunchArguments, registerSimulatedKernel } from '../driver/simulated-kernels.js'
import { Clocks } from '../order/clocks.js'
import { Stream } from '../order/stream.js'
import type { LaunchOptions } from './kernel.js'
import { Module } from './module.js'

const ONE: LaunchOptions = { grid: 1, block: 1 }
const TAKEN = 'double *out, int a, float b, double c, unsigned char d, short e, Triple f'

/** The arguments of the last `image_take`. */
let taken: LaunchArguments | null = null
registerSimulatedKernel('image_take', ({ args }) => {
  taken = args
})
registerSimulatedKernel('image_none', () => {})

function setUp() {
  const driver = new SimulatedDriver({ progress: 'eager' })
  driver.cuInit()
  const context = Context.open(driver, 0)
  const defaultStream = new Stream(new Clocks(context), 0, false)
  const load = (image: unknown) => new Module(context, defaultStream, image as Uint8Array)
  return { driver, load }
}

/** A copy of an image with other bytes from an offset on. */
function patched(image: Uint8Array, offset: number, ...bytes: number[]): Uint8Array {
  const copy = new Uint8Array(image)
  copy.set(bytes, offset)
  return copy
}

describe('a read image', () => {
  /** `offset+size` of each parameter, as the C++ rules place them. */
  const PLACES = {
    image_fill: ['0+8', '8+4', '12+4'],
    image_take: ['0+8', '8+4', '12+4', '16+8', '24+1', '26+2', '28+12'],
    image_large: ['0+5000', '5000+8'],
    image_none: [],
  }

  it('a cubin tells its architecture, its kernels, and the place of each parameter', () => {
    for (const [image, expected] of [
      [CUBIN_75, 75],
      [CUBIN_90, 90],
    ] as const) {
      const { architecture, kernels } = readCubin(image)
      assert.equal(architecture, expected)
      const places = kernels.map(({ name, parameters }) => [
        name,
        parameters.map(each => `${each.byteOffset}+${each.byteLength}`),
      ])
      assert.deepEqual(Object.fromEntries(places), PLACES)
    }
  })

  it('before CUDA 13 the architecture is in the last byte of the flags', () => {
    const before = patched(patched(CUBIN_90, 7, 0x33, 7), 48, 80, 5, 80, 0)
    assert.equal(readCubin(before).architecture, 80)
  })

  it('a fatbin tells its images, and which are compressed', () => {
    const facts = (image: Uint8Array) =>
      readFatbin(image).map(({ kind, architecture, content }) => `${kind} ${architecture} ${content !== null}`)
    assert.deepEqual(facts(FATBIN), ['cubin 90 true', 'ptx 90 true'])
    assert.deepEqual(facts(COMPRESSED_FATBIN), ['cubin 90 false', 'ptx 90 false'])
    assert.deepEqual(readCubin(readFatbin(FATBIN)[0].content!), readCubin(CUBIN_90))
  })

  it('every part of an image is refused as truncated', () => {
    for (let bytes = 4; bytes < CUBIN_90.length; bytes++) {
      assert.throws(() => readCubin(CUBIN_90.subarray(0, bytes)), { name: 'FormatError', message: /truncated/ })
    }
    for (let bytes = 4; bytes < FATBIN.length; bytes++) {
      assert.throws(() => readFatbin(FATBIN.subarray(0, bytes)), { name: 'FormatError', message: /truncated/ })
    }
  })

  it('damaged images are read or refused as a format, and never end otherwise', () => {
    const seed = 56
    const random = new Random(seed)
    let refused = 0
    for (let round = 0; round < 4000; round++) {
      const [image, read] = round % 2 === 0 ? [CUBIN_90, readCubin] : [FATBIN, readFatbin]
      // The tables lie at the start and the end; the code between them is not read.
      const offset = random.below(2) === 0 ? random.below(200) : image.length - 1 - random.below(2400)
      try {
        read(patched(image, offset, random.below(256)))
      } catch (error) {
        assert.ok(error instanceof FormatError, `seed ${seed}, round ${round}: ${error}`)
        refused++
      }
    }
    assert.ok(refused > 100, `seed ${seed}: ${refused} refused`)
  })
})

describe('a loaded cubin', () => {
  it('launches its kernels with declared parameters as PTX does', () => {
    const { driver, load } = setUp()
    const target = driver.cuMemAlloc(64)
    for (const image of [CUBIN_90, Buffer.from(CUBIN_90), FATBIN]) {
      const kernel = load(image).kernel('image_fill', {
        parameters: 'unsigned *target, unsigned count, unsigned value',
      })
      kernel.launch(ONE, { ptr: target }, 4, 7)
      const words = new Uint32Array(4)
      driver.cuMemcpyDtoH(words, target)
      assert.deepEqual([...words], [7, 7, 7, 7])
      assert.throws(() => kernel.launch(ONE, { ptr: target }, 2 ** 32, 7), {
        name: 'RangeError',
        message: /'count' must be a whole number/,
      })
      assert.throws(() => kernel.launch(ONE, { ptr: target }, 4), { message: /3 arguments \(target, count, value\)/ })
    }
  })

  it('takes each argument in its declared type', () => {
    const kernel = setUp().load(CUBIN_90).kernel('image_take', { parameters: TAKEN })
    kernel.launch(ONE, { ptr: 4096 }, -5, 0.5, 0.1, 200, -300, new Uint8Array(12).fill(3))
    assert.ok(taken !== null)
    assert.deepEqual(
      [
        taken.pointer(0),
        taken.int32(1),
        taken.float32(2),
        taken.float64(3),
        taken.bytes(4, 1)[0],
        taken.bytes(6, 12)[11],
      ],
      [4096, -5, 0.5, 0.1, 200, 3],
    )
    assert.throws(() => kernel.launch(ONE, { ptr: 4096 }, 0.5, 1, 1, 1, 1, new Uint8Array(12)), RangeError)
  })

  it('without declared types takes what is clear, and refuses numbers', () => {
    const kernel = setUp().load(CUBIN_90).kernel('image_take')
    const half = new Uint8Array(new Float32Array([0.5]).buffer)
    kernel.launch(ONE, { ptr: 4096 }, -5n, half, new Uint8Array(8), 200, -300n, new Uint8Array(12))
    assert.deepEqual([taken!.pointer(0), taken!.int32(1), taken!.float32(2)], [4096, -5, 0.5])
    const launch = (value: number | bigint | Uint8Array) => () =>
      kernel.launch(ONE, { ptr: 4096 }, value as bigint, half, new Uint8Array(8), 200, -300n, new Uint8Array(12))
    assert.throws(launch(5), {
      name: 'TypeError',
      message:
        /parameter 'parameter 1' needs a bigint.*a cubin does not tell its type.*kernel\(name, \{ parameters \}\)/,
    })
    assert.throws(launch(2n ** 32n), RangeError)
    assert.throws(launch(new Uint8Array(3)), { name: 'TypeError', message: /needs 4 bytes, not 3/ })
  })

  it('refuses parameters that are not those of the code, options it does not know, and unknown kernels', () => {
    const { load } = setUp()
    const module = load(CUBIN_90)
    const declare = (parameters: unknown) => () => module.kernel('image_fill', { parameters: parameters as string })
    for (const [given, message] of [
      ['unsigned *target, unsigned count', /declares 2, and image_fill has 3/],
      ['unsigned *target, unsigned long count, unsigned value', /'count' with 8 bytes, and in the code.*it has 4/],
      ['unsigned *target, float, unsigned value', /a type and a name each/],
      [5, /must be text as in the source.*not 5/],
    ] as const) {
      assert.throws(declare(given), { name: 'TypeError', message })
    }
    assert.throws(() => module.kernel('image_fill', { params: '' } as object), { message: /unknown option 'params'/ })
    assert.throws(() => module.kernel('fill'), { name: 'RangeError', message: /it has .*image_fill/ })
  })

  it('names parameters of PTX, too', () => {
    const kernel = setUp().load('.version 8.0\n.visible .entry image_none(.param .u32 p) {}').kernel('image_none', {
      parameters: 'int count',
    })
    assert.throws(() => kernel.launch(ONE), { message: /image_none takes 1 arguments \(count\)/ })
  })

  it('keeps the bytes as they were at the call', () => {
    const { load } = setUp()
    const image = new Uint8Array(CUBIN_90)
    const module = load(image)
    image.fill(0)
    assert.equal(module.kernel('image_none').signature.parameters.length, 0)
  })
})

describe('an image that cannot be loaded', () => {
  it('is refused before the driver sees it, with one error that says why', () => {
    const { driver, load } = setUp()
    for (const [image, message] of [
      [new Uint8Array(0), /image is empty/],
      ['', /defines no kernel/],
      ['ELF', /defines no kernel/],
      [Buffer.from('.version 8.0\n.entry k() {}'), /neither a cubin nor a fatbin; give PTX as a text/],
      [CUBIN_90.subarray(0, 1000), /truncated/],
      [patched(CUBIN_90, 18, 62, 0), /no cubin: its machine is 62, and that of GPUs is 190/],
      [patched(CUBIN_90, 4, 1), /another layout than 64 bits/],
      [patched(CUBIN_90, 16, 1), /relocatable; link it/],
      [COMPRESSED_FATBIN, /all images of the fatbin are compressed.*--no-compress/],
      [FATBIN.subarray(0, 1000), /truncated/],
      [FATBIN.subarray(0, 16), /truncated/],
      [patched(FATBIN.subarray(0, 16), 8, 0, 0, 0, 0), /holds neither a cubin nor PTX/],
    ] as const) {
      assert.throws(() => load(image), { name: 'FormatError', message })
    }
    for (const image of [null, undefined, 5, new Uint16Array(4), CUBIN_90.buffer]) {
      assert.throws(() => load(image), { name: 'TypeError', message: /image must be PTX text, or a cubin or fatbin/ })
    }
    assert.equal(driver.calls.get('cuModuleLoadData'), undefined)
  })

  it('for another GPU is refused by the driver, and the error names the GPU of the code', () => {
    const { load } = setUp()
    assert.throws(() => load(CUBIN_75), {
      name: 'CudaError',
      result: 209,
      message: /code for sm_75, and the device has compute capability 9\.0; build it for sm_90, or add PTX/,
    })
    // Both images of the fatbin say that they are for a GPU of another architecture.
    const [, ptx] = readFatbin(FATBIN)
    const second = ptx.content!.byteOffset - FATBIN.byteOffset - 80
    const foreign = patched(patched(FATBIN, 16 + 28, 100), second + 28, 120)
    assert.throws(() => load(foreign), { name: 'CudaError', message: /code for sm_100, compute_120, and the device/ })
  })
})
