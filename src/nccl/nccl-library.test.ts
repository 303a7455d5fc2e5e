// The search for NCCL, and its refusals. It needs no GPU and no NCCL.

import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { describe, it } from 'node:test'
import { pythonLibraryFolders } from '../core/libraries/toolkits.js'
import { NCCL_SINCE } from './constants.js'
import type { NcclCall } from './nccl.js'
import { noCompiler, standIn } from './nccl-library.fixture.js'
import { initParameters, NCCL_PROTOTYPES, ncclPaths, openNcclLibrary } from './nccl-library.js'

describe('opening NCCL', () => {
  it('tries the name first, then the Python environment, then toolkits', () => {
    const paths = ncclPaths({ CONDA_PREFIX: '/opt/conda', CUDA_HOME: '/opt/cuda' }, ['/usr/local/cuda'])
    const inOrder = ['libnccl.so.2', '/opt/conda/lib/libnccl.so.2', '/opt/cuda/lib64/libnccl.so.2']
    assert.deepEqual(
      paths.filter(path => inOrder.includes(path)),
      inOrder,
    )
    assert.equal(paths[0], 'libnccl.so.2')
    assert.ok(paths.includes('/usr/local/cuda/lib64/libnccl.so.2'))
  })

  it('a missing library is refused with the paths tried and the ways to get it', () => {
    assert.throws(() => openNcclLibrary(['libnccl-absent.so.2', 'libc.so.6'], 'linux'), {
      name: 'NoLibraryError',
      message:
        /none of libnccl-absent\.so\.2, libc\.so\.6 \(Cannot find function 'ncclGetVersion'.*\) could be used\. .*PyTorch.*nvidia-nccl-cu12 and nvidia-nccl-cu13.*libnccl2.*conda.*2\.19\.0 or later.*LD_LIBRARY_PATH/,
    })
  })

  it('is refused on other systems', () => {
    for (const [platform, name] of [
      ['win32', 'Windows'],
      ['darwin', 'macOS'],
      ['freebsd', 'freebsd'],
    ]) {
      assert.throws(() => openNcclLibrary(['libc.so.6'], platform), {
        name: 'NoLibraryError',
        message: `NCCL is for Linux, and this is ${name}; communicators of simulated devices work here: openDevice('simulated')`,
      })
    }
  })

  it('skips a broken library, and one below 2.19', { skip: noCompiler }, t => {
    const [old, usable] = [standIn(t, 21805), standIn(t, 21903)]
    const broken = join(dirname(old), 'broken.so')
    writeFileSync(broken, 'no library')
    const { path, version } = openNcclLibrary([broken, old, usable])
    assert.deepEqual([path, version], [usable, 21903])
    assert.throws(
      () => openNcclLibrary([broken, old]),
      (error: Error) =>
        error.message.includes(`${broken} (Failed to load`) &&
        error.message.includes(`${old} (version 2.18.5, which is below 2.19.0) could be used`),
    )
  })

  it('a function that a version lacks throws when it is called, and names the least version', {
    skip: noCompiler,
  }, t => {
    const calls = Object.entries(NCCL_SINCE) as [keyof typeof NCCL_SINCE, number][]
    for (const version of [21903, 22304, 22703, 22809, 22907, 23007]) {
      const path = standIn(t, version)
      const { functions } = openNcclLibrary([path])
      const call = (name: NcclCall) => (functions[name] as (...args: unknown[]) => number)(...argumentsFor(name))
      for (const [name, since] of calls) {
        if (version >= since) assert.ok([0, 7].includes(call(name)), `${name} of ${version}`)
        else
          assert.throws(() => call(name), {
            name: 'NoLibraryError',
            message: /libnccl\.so\.2 is NCCL 2\.\d+\.\d and lacks nccl\w+; it needs 2\.\d+\.\d$/,
          })
      }
    }
  })

  it('happens for the first communicator, and not at import', () => {
    const script = `
      const loaded = () => process.report.getReport().sharedObjects.some(path => path.includes('koffi'))
      const { openNcclLibrary } = await import(${JSON.stringify(new URL('nccl-library.js', import.meta.url))})
      const { NativeNccl } = await import(${JSON.stringify(new URL('native-nccl.js', import.meta.url))})
      const atImport = loaded()
      try { openNcclLibrary(['libnccl-absent.so.2']) } catch {}
      console.log(JSON.stringify([atImport, loaded(), typeof NativeNccl]))`
    const output = execFileSync(process.execPath, ['--input-type=module', '-e', script], { encoding: 'utf8' })
    assert.deepEqual(JSON.parse(output), [false, true, 'function'])
  })

  it('koffi accepts all prototypes', () => {
    const koffi = createRequire(import.meta.url)('koffi') as typeof import('koffi')
    for (const prototype of Object.values(NCCL_PROTOTYPES)) assert.doesNotThrow(() => koffi.proto(prototype), prototype)
    for (let copy = 0; copy < 2; copy++) assert.doesNotThrow(() => koffi.proto('int', initParameters(koffi)))
  })
})

/** Arguments that the stand-in takes for the functions of NCCL_SINCE. */
function argumentsFor(name: NcclCall): unknown[] {
  const pointer = new Uint32Array(2)
  if (name === 'ncclCommWindowRegister') return [1, 2, 3, pointer, 1]
  if (name === 'ncclAlltoAll') return [1, 2, 3, 7, 5, 6]
  if (name === 'ncclCommMemStats') return [1, 3, pointer]
  return name === 'ncclCommResume' ? [1] : [1, 1]
}

// Python's packages have the header beside the library.
const folders = pythonLibraryFolders().map(folder => join(folder, '../include'))
const header = [...folders, '/usr/include'].map(folder => join(folder, 'nccl.h')).find(path => existsSync(path))

describe('the header of NCCL', { skip: header === undefined && 'no nccl.h in the Python environment' }, () => {
  it('declares each function as the prototype does', () => {
    const text = readFileSync(header!, 'utf8').replace(/\/\*[\s\S]*?\*\/|\/\/.*/g, ' ')
    const version = ['MAJOR', 'MINOR', 'PATCH'].map(part => Number(new RegExp(`NCCL_${part} (\\d+)`).exec(text)?.[1]))
    const code = version[0] * 10000 + version[1] * 100 + version[2]
    for (const [name, prototype] of Object.entries(NCCL_PROTOTYPES)) {
      if (code < (NCCL_SINCE as Partial<Record<string, number>>)[name]!) continue
      const declared = new RegExp(`\\b(ncclResult_t|const char\\*)\\s+(${name}\\([^)]*\\));`).exec(text)
      assert.equal(shapeOf(prototype), declared && shapeOf(`${declared[1]} ${declared[2]}`), name)
    }
  })
})

/** A prototype with one word for each kind of C type that is passed alike. */
function shapeOf(prototype: string): string {
  const [, result, name, parameters] = /^(.*?)\s*\b(nccl[A-Z]\w+)\((.*)\)$/s.exec(prototype.replace(/\s+/g, ' '))!
  const kinds = parameters.split(',').map(parameter => {
    const type = parameter.replace(/\w+\s*$/, '').replace(/const|\s/g, '')
    if (/\*|^nccl(Comm|Window)_t$|^cudaStream_t$|^u?int64_t$/.test(type)) return 'word'
    return type === 'size_t' ? 'word' : type && 'int'
  })
  return `${result.includes('char') ? 'text' : 'int'} ${name}(${kinds.join(', ')})`
}
