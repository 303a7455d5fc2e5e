// Modules and launches on the simulated device. The file is long because all refusals share one module.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { CudaError, PoolError } from '../base/errors.js'
import { FUNCTION_ATTRIBUTE, RESULT } from '../driver/constants.js'
import { Context } from '../driver/context.js'
import type { SimulatedOptions } from '../driver/simulated/options.js'
import { SimulatedDriver } from '../driver/simulated/simulated-driver.js'
import { type LaunchArguments, registerSimulatedKernel } from '../driver/simulated-kernels.js'
import { Clocks } from '../order/clocks.js'
import { Stream } from '../order/stream.js'
import type { Kernel, KernelArgument, LaunchOptions } from './kernel.js'
import type { Extent } from './launch-limits.js'
import { Module } from './module.js'

const PTX = `
.version 8.0
.target sm_90
.address_size 64
.visible .entry fill_words(.param .u64 target, .param .u32 count, .param .u32 value) { ret; }
.visible .entry take_all(
  .param .u64 pointer, .param .s32 signed, .param .u32 unsigned, .param .f32 single, .param .f64 double,
  .param .u8 byte, .param .s16 short, .param .s64 wide, .param .align 4 .b8 structure[12], .param .b16 half
) { ret; }
.visible .entry half_float(.param .f16 half) { ret; }
.visible .entry no_parameters() { ret; }
.visible .entry not_registered() { ret; }`

/** The arguments of the last `take_all`. */
let taken: LaunchArguments | null = null
let launches = 0

registerSimulatedKernel('fill_words', ({ args, memory }) => {
  memory.store(args.pointer(0), new Uint32Array(args.uint32(1)).fill(args.uint32(2)))
})
registerSimulatedKernel('take_all', ({ args }) => {
  taken = args
})
registerSimulatedKernel('half_float', ({ args }) => {
  taken = args
})
registerSimulatedKernel('no_parameters', () => {
  launches++
})

function setUp(options: SimulatedOptions = {}) {
  const driver = new SimulatedDriver({ progress: 'eager', ...options })
  driver.cuInit()
  const context = Context.open(driver, 0)
  const clocks = new Clocks(context)
  const defaultStream = new Stream(clocks, 0, false)
  const stream = new Stream(clocks, driver.cuStreamCreate(1), true)
  return { driver, context, stream, defaultStream, module: new Module(context, defaultStream, PTX) }
}

const ONE: LaunchOptions = { grid: 1, block: 1 }
const ALL: readonly KernelArgument[] = [{ ptr: 4096 }, -1, 2, 0.5, 0.1, 255, -2, -3, new Uint8Array(12), 1]

/** A launch of `take_all` whose argument `index` is replaced. */
function launchWith(kernel: Kernel, index: number, value: KernelArgument): void {
  kernel.launch(ONE, ...ALL.map((argument, position) => (position === index ? value : argument)))
}

describe('module', () => {
  it("is not launched on another thread's stream that was closed or is being captured there", () => {
    const { driver, stream } = setUp()
    const there = new Clocks(Context.open(driver, 0), stream.clocks.share())
    const lent = Stream.borrow(there, stream.share())!
    const kernel = new Module(there.context, lent, PTX).kernel('no_parameters')
    const launch = () => kernel.launch({ ...ONE, stream: lent })
    launch()
    stream.beginCapture('relaxed')
    assert.throws(launch, { name: 'PoolError', message: /^launch: stream 0x\w+ is being captured/ })
    stream.abortCapture()
    launch()
    stream.close()
    assert.throws(launch, { name: 'PoolError', message: /^launch: stream 0x\w+ is closed/ })
  })

  it('knows its kernels, and lists them if the name is unknown', () => {
    const { module } = setUp()
    assert.equal(module.kernel('fill_words').signature.parameters.length, 3)
    assert.throws(() => module.kernel('fill'), {
      name: 'RangeError',
      message: /no 'fill' in this module; it has fill_words, take_all, half_float, no_parameters, not_registered/,
    })
  })

  it('text other than PTX is refused before the driver sees it', () => {
    const { context, defaultStream, driver } = setUp()
    const loads = driver.calls.get('cuModuleLoadData')
    for (const ptx of [new Uint16Array(4), null, undefined, 5]) {
      const load = () => new Module(context, defaultStream, ptx as unknown as string)
      assert.throws(load, { name: 'TypeError', message: /loadModule: image must be PTX text/ })
    }
    assert.throws(() => new Module(context, defaultStream, 'no kernels here'), { name: 'FormatError' })
    assert.equal(driver.calls.get('cuModuleLoadData'), loads)
  })

  it("passes on the driver's message about PTX that it refuses", () => {
    const { context, defaultStream } = setUp()
    assert.throws(() => new Module(context, defaultStream, '.entry k()'), { name: 'CudaError', message: /PTX/ })
  })

  it('once closed, neither it nor its kernels work; closing again does nothing', () => {
    const { module, driver } = setUp()
    const kernel = module.kernel('no_parameters')
    module.close()
    module.close()
    module[Symbol.dispose]()
    assert.equal(driver.calls.get('cuModuleUnload'), 1)
    const refused = { name: 'PoolError', message: /module is closed; load it again/ }
    assert.throws(() => module.kernel('no_parameters'), refused)
    assert.throws(() => kernel.launch(ONE), refused)
  })

  it('stays loaded for the captures and graphs that launch its kernels, and is unloaded with the last of them', () => {
    const { module, driver, stream } = setUp()
    const kernel = module.kernel('no_parameters')
    const capture = () => {
      stream.beginCapture()
      kernel.launch({ ...ONE, stream })
      kernel.launch({ ...ONE, stream })
    }
    capture()
    const first = stream.endCapture()
    capture()
    module.close()
    assert.throws(() => kernel.launch({ ...ONE, stream }), { name: 'PoolError', message: /module is closed/ })
    const second = stream.endCapture()
    first.close()
    launches = 0
    second.launch(stream)
    stream.synchronize()
    assert.deepEqual([launches, driver.calls.get('cuModuleUnload')], [2, undefined])
    second.close()
    second.close()
    module.close()
    assert.equal(driver.calls.get('cuModuleUnload'), 1)
  })

  it('is unloaded when a capture with its kernels is dropped, and by the next close after a refusal', () => {
    const { module, driver, context, stream } = setUp()
    stream.beginCapture()
    module.kernel('no_parameters').launch({ ...ONE, stream })
    module.close()
    driver.failCall({ call: 'cuModuleUnload', nth: 1, code: 999 })
    stream.abortCapture()
    assert.equal(driver.calls.get('cuModuleUnload'), 1)
    module.close()
    module.close()
    assert.equal(driver.calls.get('cuModuleUnload'), 2)
    context.release()
  })
})

describe('launch', () => {
  it('runs in its stream, or in the default stream', () => {
    const { module, driver, stream, defaultStream } = setUp()
    const target = driver.cuMemAlloc(64)
    const kernel = module.kernel('fill_words')
    const words = () => {
      const host = new Uint32Array(16)
      driver.cuMemcpyDtoH(host, target)
      return [...host]
    }
    kernel.launch({ grid: 4, block: 4 }, { ptr: target }, 16, 7)
    assert.deepEqual(words(), Array(16).fill(7))
    const ticket = driver.holdOperation(stream.handle)
    kernel.launch({ ...ONE, stream }, { ptr: target }, 8, 9)
    assert.deepEqual(words(), Array(16).fill(7))
    driver.releaseThrough(stream.handle, ticket)
    assert.deepEqual(words(), [...Array(8).fill(9), ...Array(8).fill(7)])
    assert.equal(defaultStream.query(), true)
  })

  it('passes every kind of argument at its place', () => {
    const { module } = setUp()
    const structure = Uint8Array.from({ length: 12 }, (_, index) => index)
    module
      .kernel('take_all')
      .launch(ONE, { ptr: 0x7f_1234_5678 }, -5, 4_000_000_000, 0.5, 0.1, 200, -300, -(2 ** 40), structure, 0x3c00)
    assert.ok(taken !== null)
    assert.deepEqual(
      [taken.pointer(0), taken.int32(1), taken.uint32(2), taken.float32(3), taken.float64(4)],
      [0x7f_1234_5678, -5, 4_000_000_000, 0.5, 0.1],
    )
    assert.deepEqual([taken.uint32(5) & 0xff, (taken.int32(6) << 16) >> 16], [200, -300])
    const [low, high] = [taken.uint32(7), taken.int32(7)]
    assert.deepEqual([low, high], [0, 0])
    assert.equal(taken.uint32(8), 0x03020100)
  })

  it('numbers in 64 bits: pointers, negative numbers, and both ends of the safe integers', () => {
    const { module } = setUp()
    const kernel = module.kernel('take_all')
    for (const value of [0, 1, 2 ** 32 - 1, 2 ** 32, 2 ** 45 + 12_345, Number.MAX_SAFE_INTEGER]) {
      launchWith(kernel, 0, value)
      assert.equal(taken!.pointer(0), value)
      launchWith(kernel, 7, value)
      assert.equal(taken!.pointer(7), value)
    }
    for (const value of [-1, -(2 ** 32), -(2 ** 32) - 1, -(2 ** 52), Number.MIN_SAFE_INTEGER]) {
      launchWith(kernel, 7, value)
      assert.equal(taken!.pointer(7), Number(BigInt.asUintN(64, BigInt(value))), `${value}`)
    }
  })

  it('a signed int, which compilers declare unsigned, takes negative numbers', () => {
    const { module } = setUp()
    launchWith(module.kernel('take_all'), 2, -7)
    assert.equal(taken!.int32(2), -7)
  })

  it('takes the arguments as they are at the call', () => {
    const { module, driver, stream } = setUp()
    const kernel = module.kernel('take_all')
    const structure = new Uint8Array(12).fill(1)
    driver.holdOperation(stream.handle)
    kernel.launch({ ...ONE, stream }, { ptr: 1 }, 1, 1, 1, 1, 1, 1, 1, structure, 1)
    structure.fill(2)
    assert.throws(() => launchWith(kernel, 1, 2 ** 31), RangeError)
    stream.synchronize()
    assert.deepEqual([taken!.pointer(0), taken!.int32(1), taken!.uint32(8)], [1, 1, 0x01010101])
  })

  it('a wrong number of arguments is refused, and the message names them', () => {
    const { module } = setUp()
    const kernel = module.kernel('fill_words')
    const refused = { name: 'TypeError', message: /fill_words takes 3 arguments \(target, count, value\), not 2/ }
    assert.throws(() => kernel.launch(ONE, { ptr: 0 }, 1), refused)
    assert.throws(() => kernel.launch(ONE, { ptr: 0 }, 1, 2, 3), { name: 'TypeError', message: /not 4/ })
    const before = launches
    module.kernel('no_parameters').launch(ONE)
    assert.equal(launches, before + 1)
    assert.throws(() => module.kernel('no_parameters').launch(ONE, 1), TypeError)
  })

  it('every argument is checked against its parameter, by name, before the driver sees it', () => {
    const { module, driver } = setUp()
    const kernel = module.kernel('take_all')
    const before = driver.calls.get('cuLaunchKernel')
    const wrong: readonly [index: number, value: unknown, name: 'RangeError' | 'TypeError', message: RegExp][] = [
      [0, -(2 ** 53), 'RangeError', /'pointer'/],
      [0, 1.5, 'RangeError', /'pointer'/],
      [0, new Uint8Array(8), 'TypeError', /'pointer' cannot take a Uint8Array/],
      [0, { ptr: Number.NaN }, 'TypeError', /'pointer' cannot take a ptr of NaN; pass a buffer or an address/],
      [0, { ptr: '64' }, 'TypeError', /'pointer' cannot take a ptr of '64'/],
      [0, { ptr: -8 }, 'TypeError', /'pointer' cannot take a ptr of -8/],
      [0, null, 'TypeError', /'pointer' cannot take null/],
      [0, undefined, 'TypeError', /'pointer' cannot take undefined/],
      [0, 'text', 'TypeError', /'pointer' cannot take 'text'; pass a buffer, a number or a bigint/],
      [1, 2 ** 31, 'RangeError', /'signed' must be a whole number from -2147483648 to 2147483647/],
      [1, Number.NaN, 'RangeError', /'signed'/],
      [2, 2 ** 32, 'RangeError', /'unsigned' must be a whole number from -2147483648 to 4294967295/],
      [1, { ptr: 4096 }, 'TypeError', /'signed' is no pointer; pass a number/],
      [4, { ptr: 4096 }, 'TypeError', /'double' is no pointer/],
      [3, true, 'TypeError', /'single' cannot take true; pass a number/],
      [5, 256, 'RangeError', /'byte' must be a whole number from -128 to 255/],
      [6, 32_768, 'RangeError', /'short' must be a whole number from -32768 to 32767/],
      [7, 2 ** 53, 'RangeError', /'wide'/],
      [8, new Uint8Array(11), 'TypeError', /'structure' needs 12 bytes, not 11/],
      [8, 5, 'TypeError', /'structure' needs a Uint8Array of 12 bytes/],
      [8, { ptr: 4096 }, 'TypeError', /'structure' needs a Uint8Array of 12 bytes, not a buffer/],
      [8, [1, 2], 'TypeError', /'structure' cannot take an Array; pass a Uint8Array of 12 bytes/],
      [9, 0.5, 'RangeError', /'half'/],
    ]
    for (const [index, value, name, message] of wrong) {
      const launch = () => launchWith(kernel, index, value as KernelArgument)
      assert.throws(launch, { name, message }, `argument ${index}: ${String(value)}`)
    }
    assert.equal(driver.calls.get('cuLaunchKernel'), before)
  })

  it('an integer may be a bigint of all 64 bits, or a boolean', () => {
    const { module, defaultStream } = setUp()
    const kernel = module.kernel('take_all')
    const read = (index: number, value: KernelArgument) => {
      launchWith(kernel, index, value)
      defaultStream.synchronize()
      return taken!
    }
    for (const value of [0n, -1n, 2n ** 60n, -(2n ** 63n), 2n ** 63n - 1n]) {
      assert.equal(read(7, value).int64(7), value)
    }
    for (const value of [0n, 2n ** 53n + 1n, 2n ** 64n - 1n]) assert.equal(read(0, value).uint64(0), value)
    assert.equal(read(1, -(2n ** 31n)).int32(1), -(2 ** 31))
    assert.equal(read(2, 2n ** 32n - 1n).uint32(2), 2 ** 32 - 1)
    assert.deepEqual([read(5, true).boolean(5), read(5, false).boolean(5), read(1, true).int32(1)], [true, false, 1])
    const refused: readonly [index: number, value: KernelArgument, name: string, message: RegExp][] = [
      [7, 2n ** 63n, 'RangeError', /'wide' must be an integer from -9223372036854775808 to 9223372036854775807, not 9/],
      [0, 2n ** 64n, 'RangeError', /'pointer' must be an integer from -9223372036854775808 to 18446744073709551615/],
      [2, 2n ** 32n, 'RangeError', /'unsigned' must be an integer from -2147483648 to 4294967295, not 4294967296/],
      [7, 2 ** 53, 'RangeError', /'wide' must be a whole number .*; pass a bigint for a larger one/],
      [3, 1n, 'TypeError', /'single' is no integer; pass a number/],
      [8, 1n, 'TypeError', /'structure' is no integer; pass a Uint8Array of 12 bytes/],
      [3, true, 'TypeError', /'single' cannot take true; pass a number/],
    ]
    for (const [index, value, name, message] of refused) {
      assert.throws(() => launchWith(kernel, index, value), { name, message }, `argument ${index}: ${value}`)
    }
  })

  it('a number becomes a small float', () => {
    const { module, defaultStream } = setUp()
    module.kernel('half_float').launch(ONE, 1.5)
    defaultStream.synchronize()
    assert.deepEqual([taken!.float16(0), [...taken!.bytes(0, 2)]], [1.5, [0x00, 0x3e]])
    module.kernel('half_float').launch(ONE, Uint8Array.of(0, 0xbc))
    defaultStream.synchronize()
    assert.equal(taken!.float16(0), -1)
  })

  it('the shape must be whole numbers', () => {
    const { module } = setUp()
    const kernel = module.kernel('no_parameters')
    const before = launches
    for (const extent of [1, [2], [2, 3], [2, 3, 4]] as Extent[]) kernel.launch({ grid: extent, block: extent })
    assert.equal(launches, before + 4)
    for (const extent of [0, -1, 1.5, Number.NaN, 2 ** 31, [], [0], [1, 0], [1, 1, -1], '4']) {
      const bad = extent as Extent
      assert.throws(() => kernel.launch({ grid: bad, block: 1 }), { name: 'RangeError', message: /launch: grid/ })
      assert.throws(() => kernel.launch({ grid: 1, block: bad }), { name: 'RangeError', message: /launch: block/ })
    }
    for (const sharedBytes of [-1, 0.5, Number.NaN]) {
      assert.throws(() => kernel.launch({ ...ONE, sharedBytes }), { name: 'RangeError', message: /sharedBytes/ })
    }
    kernel.launch({ ...ONE, sharedBytes: 1024 })
    assert.throws(() => kernel.launch(5 as unknown as LaunchOptions), {
      name: 'TypeError',
      message: /^launch: options must be an object such as \{ grid, block \}, not 5/,
    })
    assert.throws(() => kernel.launch({ ...ONE, shared: 1024 } as LaunchOptions), {
      name: 'TypeError',
      message: "launch: unknown option 'shared'; the options are grid, block, sharedBytes, stream, cooperative",
    })
  })

  it('the shape must be within the limits of the device, which the refusal names', () => {
    const { module, driver } = setUp()
    const kernel = module.kernel('no_parameters')
    const most: readonly LaunchOptions[] = [
      { grid: [2 ** 31 - 1, 65_535, 65_535], block: 1 },
      { grid: 1, block: [1024] },
      { grid: 1, block: [1, 1024] },
      { grid: 1, block: [4, 4, 64] },
    ]
    for (const options of most) kernel.launch(options)
    const before = driver.calls.get('cuLaunchKernel')
    const beyond: readonly [options: LaunchOptions, message: RegExp][] = [
      [{ grid: 2 ** 31, block: 1 }, /^launch: grid must be a whole number from 1 to 2147483647, the device's limit/],
      [{ grid: [1, 65_536], block: 1 }, /^launch: grid y must be .* to 65535, the device's limit, not 65536/],
      [{ grid: [1, 1, 65_536], block: 1 }, /^launch: grid z must be .* to 65535/],
      [{ grid: 1, block: 1025 }, /^launch: block must be .* to 1024/],
      [{ grid: 1, block: [1, 1, 65] }, /^launch: block z must be .* to 64/],
      [{ grid: 1, block: [32, 33] }, /^launch: block has 1056 threads; .* at most 1024/],
      [{ ...ONE, sharedBytes: 227 * 1024 + 1 }, /^launch: sharedBytes must be .* to 232448, the device's limit/],
    ]
    for (const [options, message] of beyond) {
      assert.throws(() => kernel.launch(options), { name: 'RangeError', message })
    }
    assert.equal(driver.calls.get('cuLaunchKernel'), before)
  })

  it('the driver is asked once for more shared memory than every kernel may have', () => {
    const { module, driver } = setUp()
    const kernel = module.kernel('no_parameters')
    const asked = () => driver.calls.get('cuFuncSetAttribute') ?? 0
    for (const kib of [1, 48]) kernel.launch({ ...ONE, sharedBytes: kib * 1024 })
    assert.equal(asked(), 0)
    for (const kib of [100, 100, 49, 1]) kernel.launch({ ...ONE, sharedBytes: kib * 1024 })
    assert.equal(asked(), 1)
    kernel.launch({ ...ONE, sharedBytes: 227 * 1024 })
    assert.equal(asked(), 2)
  })

  it('a cooperative grid must fit the device at once', () => {
    const { module, driver } = setUp()
    const kernel = module.kernel('no_parameters')
    const { blocksPerMultiprocessor, blocks } = kernel.occupancy([16, 16])
    assert.deepEqual([blocksPerMultiprocessor, blocks], [8, 8 * 132])
    assert.equal(kernel.occupancy(256, 100 * 1024).blocksPerMultiprocessor, 2)
    const before = launches
    kernel.launch({ grid: [blocks / 2, 2], block: 256, cooperative: true })
    assert.equal(launches, before + 1)
    assert.equal(driver.calls.get('cuLaunchCooperativeKernel'), 1)
    assert.throws(() => kernel.launch({ grid: blocks + 1, block: 256, cooperative: true }), {
      name: 'RangeError',
      message: /^launch: a cooperative grid of 1057 blocks is too large: 1056 of this kernel run/,
    })
    assert.equal(driver.calls.get('cuLaunchCooperativeKernel'), 1)
    kernel.launch({ grid: blocks + 1, block: 256 })
    assert.throws(() => kernel.occupancy(1025), { name: 'RangeError', message: /^occupancy: block/ })
    for (const sharedBytes of [-1, Object.create(null), 'x']) {
      assert.throws(() => kernel.occupancy(32, sharedBytes), { name: 'RangeError', message: /^occupancy: sharedBytes/ })
    }
  })

  it("a shape that fills the device is suggested, and a kernel's resources are reported", () => {
    const { module } = setUp()
    const kernel = module.kernel('no_parameters')
    const { grid, block } = kernel.suggestShape()
    assert.equal(grid, kernel.occupancy(block).blocks)
    assert.deepEqual(kernel.resources(), { mostBlockThreads: 1024, registers: 0, sharedBytes: 0, localBytes: 0 })
    module.close()
    const closed = { name: 'PoolError', message: /module is closed/ }
    assert.throws(() => kernel.suggestShape(), closed)
    assert.throws(() => kernel.occupancy(32), closed)
    assert.throws(() => kernel.resources(), closed)
  })

  it('a block that has too few registers is refused with the block that has enough', () => {
    const { module, driver } = setUp()
    const kernel = module.kernel('no_parameters')
    driver.failCall({ call: 'cuLaunchKernel', nth: 1, code: RESULT.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES })
    const attribute = driver.cuFuncGetAttribute.bind(driver)
    driver.cuFuncGetAttribute = (which, handle) => {
      const values: Record<number, number> = {
        [FUNCTION_ATTRIBUTE.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK]: 512,
        [FUNCTION_ATTRIBUTE.CU_FUNC_ATTRIBUTE_NUM_REGS]: 128,
      }
      return values[which] ?? attribute(which, handle)
    }
    assert.throws(() => kernel.launch({ grid: 1, block: 1024 }), {
      name: 'RangeError',
      message: /no_parameters takes 128 registers a thread, so that a block has at most 512 threads, not 1024/,
    })
    kernel.launch({ grid: 1, block: 512 })
  })

  it('a stream or a cooperative of the wrong type is refused, and not taken for none', () => {
    const { module, driver } = setUp()
    const kernel = module.kernel('no_parameters')
    const wrong: readonly [options: object, message: RegExp][] = [
      [{ stream: null }, /^launch: stream must be a Stream, not null/],
      [{ cooperative: 1 }, /^launch: cooperative must be true or false, not 1/],
      [{ cooperative: 'true' }, /^launch: cooperative must be true or false, not 'true'/],
    ]
    for (const [options, message] of wrong) {
      assert.throws(() => kernel.launch({ ...ONE, ...options }), { name: 'TypeError', message })
    }
    assert.equal(driver.calls.get('cuLaunchKernel'), undefined)
    kernel.launch({ ...ONE, ...({ stream: undefined, cooperative: undefined } as object) })
  })

  it('a closed stream, and a stream of another device, is refused', () => {
    const { module, stream } = setUp()
    const kernel = module.kernel('no_parameters')
    const elsewhere = setUp()
    assert.throws(() => kernel.launch({ ...ONE, stream: elsewhere.stream }), {
      name: 'PoolError',
      message: /another device/,
    })
    assert.throws(() => kernel.launch({ ...ONE, stream: module as unknown as Stream }), {
      name: 'TypeError',
      message: /^launch: stream must be a Stream, not a Module/,
    })
    stream.close()
    assert.throws(() => kernel.launch({ ...ONE, stream }), { name: 'PoolError', message: /stream is closed/ })
  })

  it('memory of another device is refused, and an address that throws is passed on', () => {
    const { module, context } = setUp()
    const kernel = module.kernel('take_all')
    launchWith(kernel, 0, { ptr: 4096, context })
    const foreign = { ptr: 4096, context: setUp().context }
    const expected = { name: 'PoolError', message: /'pointer' belongs to another device, of another driver/ }
    assert.throws(() => launchWith(kernel, 0, foreign), expected)
    const freed = {
      get ptr(): number {
        throw new PoolError('ptr: the buffer was already freed')
      },
    }
    assert.throws(() => launchWith(kernel, 0, freed), { name: 'PoolError', message: /already freed/ })
  })

  it('memory of another device is taken if it says that it can be reached', () => {
    const { driver, module, context } = setUp({ devices: 2 })
    const kernel = module.kernel('take_all')
    const other = Context.open(driver, 1)
    const expected = {
      name: 'PoolError',
      message: /'pointer' belongs to another device: device 0 has no.*device 1.*setAccess/,
    }
    for (const reachable of [undefined, () => false]) {
      const foreign = { ptr: 4096, context: other, ...(reachable && { reachableFrom: reachable }) }
      assert.throws(() => launchWith(kernel, 0, foreign), expected)
    }
    taken = null
    launchWith(kernel, 0, { ptr: 8192, context: other, reachableFrom: (from: Context) => from === context })
    driver.cuCtxSynchronize()
    assert.equal(taken!.pointer(0), 8192)
  })

  it('a kernel without a TypeScript function says what to do on the simulated device', () => {
    const { module } = setUp()
    assert.throws(
      () => module.kernel('not_registered'),
      (error: unknown) => {
        assert.ok(error instanceof CudaError)
        assert.match(error.message, /register a TypeScript function for kernel not_registered/)
        return true
      },
    )
  })
})
