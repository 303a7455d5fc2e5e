// The search for NVRTC, and compilations if it is installed. It needs no GPU.

import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { CompileError, NoLibraryError } from '../base/errors.js'
import { type CompileRequest, openNvrtc, type SourceCompiler } from './nvrtc.js'
import { nvrtcPaths, openNvrtcLibrary } from './nvrtc-library.js'
import { pythonLibraryFolders } from './toolkits.js'

/** A version above all drivers. */
const ANY_DRIVER = 99_000

function installed(): SourceCompiler | null {
  try {
    return openNvrtc(ANY_DRIVER)
  } catch (error) {
    if (error instanceof NoLibraryError) return null
    throw error
  }
}

const nvrtc = installed()
const skip = nvrtc === null && 'NVRTC is not installed where it is looked for'

describe('opening NVRTC', () => {
  it('tries names, then toolkits, then the Python environment', t => {
    const folder = mkdtempSync(join(tmpdir(), 'python-'))
    t.after(() => rmSync(folder, { recursive: true }))
    const lib = join(folder, 'lib/python3.12/site-packages/nvidia/cu13/lib')
    mkdirSync(lib, { recursive: true })
    mkdirSync(join(folder, 'lib/python3.12/site-packages/nvidia/cu13/include'))
    const env = { CUDA_HOME: '/opt/cuda', VIRTUAL_ENV: folder }
    assert.deepEqual(pythonLibraryFolders(env), [join(folder, 'lib'), lib])
    assert.deepEqual(pythonLibraryFolders({ CONDA_PREFIX: '/absent' }), ['/absent/lib'])
    const paths = nvrtcPaths(env, ['/usr/local/cuda'])
    assert.deepEqual(paths.slice(0, 4), ['libnvrtc.so.13', 'libnvrtc.so.12', 'libnvrtc.so.11.2', 'libnvrtc.so'])
    const at = (path: string) => paths.indexOf(path)
    assert.ok(at('/opt/cuda/lib64/libnvrtc.so.12') < at('/usr/local/cuda/lib64/libnvrtc.so.13'))
    assert.ok(at('/usr/local/cuda/lib64/libnvrtc.so') < at(`${lib}/libnvrtc.so.13`))
    assert.ok(at('/opt/cuda/lib64/libnvrtc.so.12') > 0)
  })

  it('a missing library is refused with the paths tried, and the way without it', t => {
    const folder = mkdtempSync(join(tmpdir(), 'nvrtc-'))
    t.after(() => rmSync(folder, { recursive: true }))
    const broken = join(folder, 'libnvrtc.so.12')
    writeFileSync(broken, 'no library')
    assert.throws(
      () => openNvrtcLibrary(['libnvrtc-absent.so', broken], ANY_DRIVER),
      (error: Error) =>
        error instanceof NoLibraryError &&
        /none of libnvrtc-absent\.so, \S+libnvrtc\.so\.12 \(.+\) could be used/.test(error.message) &&
        /nvcc -ptx.*device\.loadModule$/.test(error.message),
    )
    assert.throws(() => openNvrtc(ANY_DRIVER, '/absent/libnvrtc.so'), {
      name: 'NoLibraryError',
      message: /none of \/abs/,
    })
  })

  it('skips a library that is newer than the driver', { skip }, () => {
    const major = Number(nvrtc!.version.split('.')[0])
    assert.throws(() => openNvrtc((major - 1) * 1000 + 990, nvrtc!.path), {
      name: 'NoLibraryError',
      message: /of CUDA \d+\.\d+, which is above the driver's/,
    })
  })
})

describe('NVRTC', { skip }, () => {
  function compile(source: string, more: Partial<CompileRequest> = {}) {
    const request = { name: 'k.cu', headers: {}, options: ['--gpu-architecture=sm_80'], expressions: [] }
    return nvrtc!.compile({ source, ...request, ...more })
  }

  it('makes machine code, PTX and the mangled names of kernels', () => {
    assert.ok(nvrtc!.architectures.includes(80))
    const { ptx, cubin, names, log } = compile(
      '#include "params.h"\ntemplate <typename T> __global__ void scale(T *a, Params p) { a[threadIdx.x] *= p.factor; }',
      {
        headers: { 'params.h': 'struct Params { int n; double factor; };' },
        expressions: ['scale<float>', 'scale<int>'],
      },
    )
    assert.deepEqual([...cubin!.subarray(0, 4)], [0x7f, 0x45, 0x4c, 0x46])
    assert.deepEqual([...names.keys()], ['scale<float>', 'scale<int>'])
    for (const name of names.values()) assert.ok(ptx.includes(`.entry ${name}(`), name)
    assert.notEqual(names.get('scale<float>'), names.get('scale<int>'))
    assert.equal(log, '')
    const virtual = compile('extern "C" __global__ void k(int *a) { *a = N; }', {
      options: ['--gpu-architecture=compute_75', '--define-macro=N=7'],
    })
    assert.equal(virtual.cubin, null)
    assert.match(virtual.ptx, /\.target sm_75[\s\S]*, 7;/)
  })

  it('names the line of an error, and logs warnings', () => {
    const wrong = 'extern "C" __global__ void k(int *a) {\n  *a = 1;\n  b = 2;\n}'
    assert.throws(
      () => compile(wrong),
      (error: unknown) => {
        assert.ok(error instanceof CompileError)
        assert.match(error.log, /^k\.cu\(3\): error: identifier "b" is undefined/)
        assert.equal(error.message, `compileKernels: k.cu does not compile:\n${error.log}`)
        return true
      },
    )
    assert.match(compile('__global__ void k() { int unused; }').log, /^k\.cu\(1\): warning.*"unused"/)
    assert.throws(() => compile('', { options: ['--nonsense'] }), { name: 'CompileError', message: /nonsense/ })
    assert.throws(() => compile('', { expressions: ['absent<int>'] }), { name: 'CompileError', message: /"absent"/ })
  })
})
