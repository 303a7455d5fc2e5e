// Opening libcuda, tested without a GPU: the search, the refusals, and the prototypes that koffi gets.

import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { CudaError, NoDeviceError } from '../../base/errors.js'
import { FUNCTION_NAMES, koffiPrototype } from '../table.js'
import { openLibrary } from './library.js'

describe('opening libcuda', () => {
  test('a missing library is refused with the paths tried and the remedy', () => {
    assert.throws(
      () => openLibrary(['libcuda-absent.so.1', '/absent/libcuda.so'], 'linux', 'x64'),
      (error: Error) =>
        error instanceof NoDeviceError &&
        /libcuda-absent\.so\.1, \/absent\/libcuda\.so.*install the NVIDIA driver.*'simulated'/.test(error.message),
    )
  })

  test('a system without support for GPUs is told what works on it', () => {
    for (const [platform, arch, name] of [
      ['darwin', 'arm64', 'macOS (arm64)'],
      ['win32', 'x64', 'Windows (x64)'],
      ['linux', 'riscv64', 'Linux (riscv64)'],
      ['freebsd', 'x64', 'freebsd (x64)'],
    ] as const) {
      const message = `GPUs work on Linux (x64 and arm64) and in WSL, not on ${name}; recordings and openDevice('simulated') work here`
      assert.throws(() => openLibrary(undefined, platform, arch), { name: 'NoDeviceError', message })
    }
  })

  test('a broken library is refused as broken, not as missing', t => {
    const folder = mkdtempSync(join(tmpdir(), 'libcuda-'))
    t.after(() => rmSync(folder, { recursive: true }))
    const broken = join(folder, 'libcuda.so.1')
    writeFileSync(broken, 'not a library')
    for (const path of [broken, 'libc.so.6']) {
      assert.throws(
        () => openLibrary([path], 'linux', 'x64'),
        (error: Error) => error instanceof CudaError && error.result === 303 && error.message.includes(path),
      )
    }
  })

  test('koffi is loaded when libcuda is opened, not at import', () => {
    const script = `
      const loaded = () => process.report.getReport().sharedObjects.some(path => path.includes('koffi'))
      const { NativeDriver } = await import(${JSON.stringify(new URL('./native-driver.js', import.meta.url))})
      const { openLibrary } = await import(${JSON.stringify(new URL('./library.js', import.meta.url))})
      const atImport = loaded()
      try { openLibrary(['libcuda-absent.so.1'], 'linux', 'x64') } catch {}
      console.log(JSON.stringify([typeof NativeDriver, atImport, loaded()]))`
    const output = execFileSync(process.execPath, ['--input-type=module', '-e', script], { encoding: 'utf8' })
    assert.deepEqual(JSON.parse(output), ['function', false, true])
  })

  test('koffi accepts every row of the table', () => {
    const koffi = createRequire(import.meta.url)('koffi') as typeof import('koffi')
    for (const name of FUNCTION_NAMES) assert.doesNotThrow(() => koffi.proto(koffiPrototype(name)), name)
    assert.equal(koffiPrototype('cuMemMap'), 'int cuMemMap(uint64_t, size_t, size_t, uint64_t, unsigned long long)')
    assert.equal(
      koffiPrototype('cuMemPoolImportFromShareableHandle'),
      'int cuMemPoolImportFromShareableHandle(uint64_t, void *handle, int, unsigned long long)',
    )
  })
})
