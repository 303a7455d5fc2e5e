// The calls of the compiler, with a stand-in for NVRTC, and what the simulated device does instead.
// `src/core/libraries/nvrtc.test.ts` tests NVRTC itself, if it is installed.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { CompileError, FormatError, NoLibraryError } from '../base/errors.js'
import { bfloat16, float16 } from '../base/small-floats.js'
import { Context } from '../driver/context.js'
import { SimulatedDriver } from '../driver/simulated/simulated-driver.js'
import { registerSimulatedKernel } from '../driver/simulated-kernels.js'
import type { CompileRequest, SourceCompiler } from '../libraries/nvrtc.js'
import { Clocks } from '../order/clocks.js'
import { Stream } from '../order/stream.js'
import type { CompileOptions } from './compile-options.js'
import { Compiler } from './compiler.js'
import { deviceIncludePath } from './device-code.js'

const SOURCE = 'extern "C" __global__ void scale(float *data, float factor, int count) {}'
const PTX = `
.version 9.0
.visible .entry scale(.param .u64 scale_param_0, .param .f32 scale_param_1, .param .u32 scale_param_2) { ret; }
.visible .entry _Z4twicePf(.param .u64 _Z4twicePf_param_0) { ret; }`

let ran: number[] = []
registerSimulatedKernel('scale', ({ args }) => {
  ran = [args.pointer(0), args.float32(1), args.int32(2)]
})
registerSimulatedKernel('_Z4twicePf', () => {})

function contextOf(driver: SimulatedDriver): { context: Context; stream: Stream } {
  driver.cuInit()
  const context = Context.open(driver, 0)
  return { context, stream: new Stream(new Clocks(context), 0, false) }
}

/** A device that claims to be a GPU, with a compiler that makes `PTX` of every source. */
function setUp(compiler: Partial<SourceCompiler> = {}) {
  const driver = new SimulatedDriver({ progress: 'eager' })
  Object.defineProperty(driver, 'simulated', { value: false })
  const { context, stream } = contextOf(driver)
  const requests: CompileRequest[] = []
  const opened: (string | undefined)[] = []
  const stand: SourceCompiler = {
    path: 'a stand-in',
    version: '13.0',
    architectures: [75, 80, 90],
    compile(request) {
      requests.push(request)
      return { ptx: PTX, cubin: null, names: new Map([['twice', '_Z4twicePf']]), log: 'a warning' }
    },
    ...compiler,
  }
  const compile = new Compiler(context, stream, (_, path) => {
    opened.push(path)
    return stand
  })
  return { driver, compiler: compile, requests, opened }
}

describe('compileKernels with NVRTC', () => {
  it('compiles for the device, with the header of this package', () => {
    const { compiler, requests } = setUp()
    const module = compiler.compile(SOURCE, {})
    const [{ name, source, options, expressions, headers }] = requests
    assert.deepEqual([name, source, expressions, headers], ['kernels.cu', SOURCE, [], {}])
    assert.deepEqual(options.slice(0, 2), ['--gpu-architecture=sm_90', `--include-path=${deviceIncludePath()}`])
    assert.equal(module.log, 'a warning')
  })

  it('passes every option on', () => {
    const { compiler, requests, opened } = setUp()
    compiler.compile(SOURCE, {
      name: 'mine.cu',
      kernels: ['twice'],
      includePaths: ['/mine'],
      headers: { 'a.h': 'int a;' },
      defines: { A: 3, B: true, C: false, D: 'x' },
      std: 'c++20',
      architecture: 'compute_80',
      debug: true,
      flags: ['--use_fast_math'],
      nvrtc: '/opt/libnvrtc.so',
    })
    const [{ name, options, expressions, headers }] = requests
    assert.deepEqual(
      [name, expressions, headers, opened],
      ['mine.cu', ['twice'], { 'a.h': 'int a;' }, ['/opt/libnvrtc.so']],
    )
    const include = `--include-path=${deviceIncludePath()}`
    const ours = options.filter(option => option === include || !/^--include-path=.*\/include$/.test(option))
    assert.deepEqual(ours, [
      '--gpu-architecture=compute_80',
      '--std=c++20',
      '--device-debug',
      '--generate-line-info',
      '--define-macro=A=3',
      '--define-macro=B=1',
      '--define-macro=D=x',
      '--include-path=/mine',
      include,
      '--use_fast_math',
    ])
  })

  it("gives kernels and parameters the source's names", () => {
    const { compiler } = setUp()
    const module = compiler.compile(SOURCE, { kernels: ['twice'] })
    const scale = module.kernel('scale')
    assert.deepEqual(
      scale.signature.parameters.map(each => each.name),
      ['data', 'factor', 'count'],
    )
    scale.launch({ grid: 1, block: 1 }, { ptr: 4096 }, 0.5, 7)
    assert.deepEqual(ran, [4096, 0.5, 7])
    assert.equal(module.kernel('twice').signature.name, 'twice')
    assert.throws(() => module.kernel('twine'), { name: 'RangeError', message: /it has twice, scale$/ })
    const mangled = /it has scale, _Z4twicePf\. Names that begin with _Z are mangled: .* option kernels/
    const unnamed = setUp({ compile: () => ({ ptx: PTX, cubin: null, names: new Map(), log: '' }) }).compiler
    assert.throws(() => unnamed.compile(SOURCE, {}).kernel('twice'), { name: 'RangeError', message: mangled })
  })

  it('compiles the same source once, and loads it each time', () => {
    const { compiler, requests, driver } = setUp()
    const first = compiler.compile(SOURCE, { defines: { A: 1 } })
    const second = compiler.compile(SOURCE, { defines: { A: 1 } })
    assert.equal(requests.length, 1)
    assert.equal(driver.calls.get('cuModuleLoadData'), 2)
    first.close()
    second.kernel('scale').launch({ grid: 1, block: 1 }, { ptr: 1 }, 1, 1)
    const others: readonly [string, CompileOptions][] = [
      [`${SOURCE} `, { defines: { A: 1 } }],
      [SOURCE, { defines: { A: 2 } }],
      [SOURCE, { defines: { A: 1 }, architecture: 'sm_80' }],
      [SOURCE, { defines: { A: 1 }, kernels: ['twice'] }],
      [SOURCE, { defines: { A: 1 }, headers: { a: 'b' } }],
      [SOURCE, { defines: { A: 1 }, name: 'other.cu' }],
    ]
    for (const [index, [source, options]] of others.entries()) {
      compiler.compile(source, options)
      assert.equal(requests.length, index + 2)
    }
  })

  it('takes PTX for a device that is newer than the compiler, and refuses one that is older', () => {
    const newer = setUp({ architectures: [75, 80, 86] })
    newer.compiler.compile(SOURCE, {})
    assert.equal(newer.requests[0].options[0], '--gpu-architecture=compute_86')
    const older = setUp({ architectures: [100, 120] })
    assert.throws(
      () => older.compiler.compile(SOURCE, {}),
      (error: Error) =>
        error instanceof NoLibraryError && /capability 10 and later, and the device has 9;/.test(error.message),
    )
  })

  it('passes on the log of a failed compilation, and keeps nothing of it', () => {
    let fails = true
    const { compiler } = setUp({
      compile: () => {
        if (fails) throw new CompileError('compileKernels: k.cu does not compile:\nk.cu(3): error', 'k.cu(3): error')
        return { ptx: PTX, cubin: null, names: new Map(), log: '' }
      },
    })
    assert.throws(() => compiler.compile(SOURCE, {}), { name: 'CompileError', log: 'k.cu(3): error' })
    fails = false
    compiler.compile(SOURCE, {}).kernel('scale')
  })

  it('refuses source without a kernel', () => {
    const { compiler } = setUp({ compile: () => ({ ptx: '.version 9.0', cubin: null, names: new Map(), log: '' }) })
    assert.throws(
      () => compiler.compile('int a;', {}),
      (error: Error) => error instanceof FormatError && /extern "C"/.test(error.message),
    )
  })

  it('checks source and options before anything is opened', () => {
    const { compiler, opened } = setUp()
    const wrong: readonly [source: unknown, options: unknown, message: RegExp][] = [
      [5, {}, /source must be CUDA C\+\+ text, not 5/],
      [SOURCE, null, /options must be an object/],
      [SOURCE, { define: {} }, /unknown option 'define'; the options are name, kernels,/],
      [SOURCE, { name: '' }, /name must be text/],
      [SOURCE, { std: 17 }, /std must be text, not 17/],
      [SOURCE, { kernels: 'scale' }, /kernels must be a list of texts, not 'scale'/],
      [SOURCE, { flags: [1] }, /flags must be a list/],
      [SOURCE, { includePaths: [''] }, /includePaths must be a list/],
      [SOURCE, { debug: 1 }, /debug must be true or false/],
      [SOURCE, { headers: { a: 1 } }, /headers must be an object of texts/],
      [SOURCE, { defines: { A: {} } }, /defines must be an object of texts/],
      [SOURCE, { simulated: { scale: 1 } }, /simulated must be an object of functions/],
      [SOURCE, { structBytes: { P: 0 } }, /structBytes must be an object of sizes/],
    ]
    for (const [source, options, message] of wrong) {
      assert.throws(() => compiler.compile(source as string, options as CompileOptions), { name: 'TypeError', message })
    }
    assert.deepEqual(opened, [])
  })
})

describe('compileKernels on the simulated device', () => {
  function simulated() {
    const { context, stream } = contextOf(new SimulatedDriver({ progress: 'eager' }))
    return new Compiler(context, stream, () => assert.fail('nothing is compiled'))
  }

  it('runs the function given for each kernel, under the same checks', () => {
    const seen: number[] = []
    const source = 'extern "C" __global__ void add(float *data, short n, unsigned long long wide, Params p) {}'
    const module = simulated().compile(source, {
      structBytes: { Params: 12 },
      simulated: {
        add: ({ args, shape }) => {
          seen.push(shape.grid[0], args.pointer(0), args.pointer(2), ...args.bytes(3, 12))
        },
      },
    })
    const add = module.kernel('add')
    const params = Uint8Array.from({ length: 12 }, (_, index) => index)
    add.launch({ grid: 3, block: 1 }, { ptr: 4096 }, 1, 2, params)
    assert.deepEqual(seen, [3, 4096, 2, ...params])
    const launch = (...args: never[]) => add.launch({ grid: 1, block: 1 }, ...args)
    assert.throws(() => launch({ ptr: 1 } as never, 40_000 as never, 2 as never, params as never), {
      name: 'RangeError',
      message: /add: 'n' must be a whole number from -32768 to 32767/,
    })
    assert.throws(() => launch(1 as never), {
      name: 'TypeError',
      message: /add takes 4 arguments \(data, n, wide, p\)/,
    })
  })

  it('knows 64-bit integers, booleans and small floats', () => {
    let seen: unknown
    const source = `extern "C" __global__ void echo(
      const long long wide, uint64_t more, bool is, const __half half, __nv_bfloat16 brain, half2 pair) {}`
    const module = simulated().compile(source, {
      structBytes: { half2: 4 },
      simulated: {
        echo: ({ args }) => {
          seen = [args.int64(0), args.uint64(1), args.boolean(2), args.float16(3), args.bfloat16(4), args.bytes(5, 4)]
        },
      },
    })
    const pair = Uint8Array.of(1, 2, 3, 4)
    module.kernel('echo').launch({ grid: 1, block: 1 }, -(2n ** 60n), 2n ** 63n, true, 0.1, 1e30, pair)
    const [half, brain] = [float16.decode(float16.encode([0.1])), bfloat16.decode(bfloat16.encode([1e30]))]
    assert.deepEqual(seen, [-(2n ** 60n), 2n ** 63n, true, half[0], brain[0], pair])
  })

  it('keeps kernels of one name apart', () => {
    const compiler = simulated()
    const said: string[] = []
    const source = 'extern "C" __global__ void same() {}'
    const [a, b] = ['a', 'b'].map(text => compiler.compile(source, { simulated: { same: () => void said.push(text) } }))
    for (const module of [a, b, a]) module.kernel('same').launch({ grid: 1, block: 1 })
    assert.deepEqual(said, ['a', 'b', 'a'])
  })

  it('takes a registered function, and expressions of C++', () => {
    simulated().compile(SOURCE, {}).kernel('scale').launch({ grid: 1, block: 1 }, { ptr: 8 }, 2, 3)
    assert.deepEqual(ran, [8, 2, 3])
    let calls = 0
    const source = 'namespace a { template <class T> __global__ void twice(T *x) {} }'
    const module = simulated().compile(source, {
      kernels: ['a::twice<int>'],
      simulated: { 'a::twice<int>': () => calls++ },
    })
    module.kernel('a::twice<int>').launch({ grid: 1, block: 1 }, { ptr: 8 })
    assert.equal(calls, 1)
  })

  it('names a missing function or size, and how to give it', () => {
    const compile =
      (source: string, options: CompileOptions = {}) =>
      () =>
        simulated().compile(source, options)
    const wrong: readonly [act: () => unknown, name: string, message: RegExp][] = [
      [
        compile('extern "C" __global__ void lone() {}'),
        'TypeError',
        /no function for kernel lone; give one in the option simulated: \{ "lone": launch/,
      ],
      [compile('extern "C" __global__ void toString(int *x) {}'), 'TypeError', /no function for kernel toString/],
      [compile('__global__ void mangled() {}'), 'FormatError', /declares no kernel; declare one extern "C"/],
      [compile(SOURCE, { kernels: ['other'] }), 'RangeError', /declares no kernel 'other'; it has scale/],
      [
        compile(SOURCE, { simulated: { scala: () => {} } }),
        'RangeError',
        /simulated has 'scala'; the kernels are scale/,
      ],
      [
        compile('extern "C" __global__ void taking(Params p) {}', { simulated: { taking: () => {} } }),
        'TypeError',
        /does not know the type 'Params' of parameter p; give its size in the option structBytes/,
      ],
    ]
    for (const [act, name, message] of wrong) assert.throws(act, { name, message })
  })
})
