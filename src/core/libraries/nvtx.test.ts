// NVTX without its library: the search for it, the events that a tool gets, and refused arguments.

import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { NoLibraryError } from '../base/errors.js'
import { fakeNvtx } from './nvtx.fixture.js'
import { openNvtx } from './nvtx.js'
import { NVTX_PROTOTYPES, nvtxPaths, openNvtxLibrary } from './nvtx-library.js'
import { toolkitsIn } from './toolkits.js'

describe('opening NVTX', () => {
  it('tries names first, then named toolkits, then installed toolkits', () => {
    const paths = nvtxPaths({ CUDA_HOME: '/opt/cuda', CUDA_PATH: '' }, ['/usr/local/cuda', '/usr/local/cuda-13.0'])
    assert.deepEqual(paths.slice(0, 4), [
      'libnvtx3interop.so.1',
      'libnvToolsExt.so.1',
      '/opt/cuda/lib64/libnvtx3interop.so.1',
      '/opt/cuda/lib64/libnvToolsExt.so.1',
    ])
    const at = (path: string) => paths.findIndex(each => each.startsWith(path))
    assert.ok(
      at('/opt/cuda/targets/') < at('/usr/local/cuda/lib64') && at('/usr/local/cuda/') < at('/usr/local/cuda-13.0'),
    )
    const target = process.arch === 'arm64' ? 'sbsa-linux' : 'x86_64-linux'
    assert.ok(paths.includes(`/usr/local/cuda-13.0/targets/${target}/lib/libnvtx3interop.so.1`))
    assert.equal(new Set(paths).size, paths.length)
    assert.ok(nvtxPaths({}).includes('/usr/local/cuda/lib64/libnvtx3interop.so.1'))
  })

  it('finds toolkits, the newest first', t => {
    const folder = mkdtempSync(join(tmpdir(), 'toolkits-'))
    t.after(() => rmSync(folder, { recursive: true }))
    for (const name of ['cuda-9.2', 'cuda-13.0', 'cuda-12.8', 'cudnn']) mkdirSync(join(folder, name))
    const names = ['cuda', 'cuda-13.0', 'cuda-12.8', 'cuda-9.2']
    assert.deepEqual(
      toolkitsIn(folder),
      names.map(name => join(folder, name)),
    )
    assert.deepEqual(toolkitsIn(join(folder, 'absent')), [join(folder, 'absent', 'cuda')])
  })

  it('a missing library is refused with the paths tried and the remedy', () => {
    assert.throws(
      () => openNvtxLibrary(['libnvtx-absent.so.1', '/absent/libnvtx.so.1']),
      (error: Error) =>
        error instanceof NoLibraryError &&
        /none of libnvtx-absent\.so\.1, \/absent\/libnvtx\.so\.1 could be opened; .*LD_LIBRARY_PATH/.test(
          error.message,
        ),
    )
    assert.throws(() => openNvtx('/absent/libnvtx.so.1'), { name: 'NoLibraryError', message: /none of \/absent/ })
    assert.throws(() => openNvtx(5 as never), { name: 'TypeError', message: /openNvtx: path/ })
  })

  it('a broken library is named with its error, and the next one is opened', t => {
    const folder = mkdtempSync(join(tmpdir(), 'nvtx-'))
    t.after(() => rmSync(folder, { recursive: true }))
    const broken = join(folder, 'libnvtx3interop.so.1')
    writeFileSync(broken, 'not a library')
    const why = (error: Error) => error instanceof NoLibraryError && error.message.includes(`${broken} (Failed to load`)
    assert.throws(() => openNvtx(broken), why)
    assert.equal(openNvtxLibrary([broken, 'libc.so.6']).path, 'libc.so.6')
  })

  it('a missing function is named', () => {
    assert.throws(() => openNvtx('libc.so.6'), {
      name: 'NoLibraryError',
      message: /^libc\.so\.6 has no nvtxDomainCreateA; /,
    })
  })

  it('happens in openNvtx, and not at import', () => {
    const script = `
      const loaded = () => process.report.getReport().sharedObjects.some(path => path.includes('koffi'))
      const { openNvtx } = await import(${JSON.stringify(new URL('../../entries/profiling.js', import.meta.url))})
      const atImport = loaded()
      try { openNvtx('libnvtx-absent.so.1') } catch {}
      console.log(JSON.stringify([atImport, loaded()]))`
    const output = execFileSync(process.execPath, ['--input-type=module', '-e', script], { encoding: 'utf8' })
    assert.deepEqual(JSON.parse(output), [false, true])
  })

  it('koffi accepts all prototypes', () => {
    const koffi = createRequire(import.meta.url)('koffi') as typeof import('koffi')
    for (const prototype of Object.values(NVTX_PROTOTYPES)) assert.doesNotThrow(() => koffi.proto(prototype), prototype)
  })
})

describe('NVTX', () => {
  it('binds all functions at first, and opens its domain once, with the first event', () => {
    const { nvtx, library } = fakeNvtx()
    assert.deepEqual([...library.binds].sort(), Object.keys(NVTX_PROTOTYPES).sort())
    assert.equal(library.events.length, 0)
    nvtx.mark('a')
    nvtx.mark('b')
    const domain = { call: 'nvtxDomainCreateA', text: 'cuda-mempool' }
    assert.deepEqual(library.events[0], domain)
    assert.equal(library.events.filter(event => event.call === 'nvtxDomainCreateA').length, 1)
    assert.equal(nvtx.path, 'a stand-in')
  })

  it('passes texts and payloads unchanged, one after another', () => {
    const { nvtx, library } = fakeNvtx()
    nvtx.push('a long text before', 2 ** 53 - 1)
    nvtx.mark('short')
    nvtx.mark('Größe ✓', 0)
    nvtx.pop()
    nvtx.mark('')
    const most = Number.MAX_SAFE_INTEGER
    assert.deepEqual(library.told(), [`push a long text before ${most}`, '|mark short', '|mark Größe ✓ 0', 'mark '])
  })

  it('truncates long texts between two characters', () => {
    const { nvtx, library } = fakeNvtx()
    nvtx.mark('x'.repeat(1000))
    nvtx.mark(`y${'ü'.repeat(200)}`)
    nvtx.mark('z')
    assert.deepEqual(library.told(), [`mark ${'x'.repeat(255)}`, `mark y${'ü'.repeat(127)}`, 'mark z'])
  })

  it('ranges may overlap, and each ends once', () => {
    const { nvtx, library } = fakeNvtx()
    const first = nvtx.range('first', 1)
    {
      using second = nvtx.range('second')
      first.end()
      first.end()
      first[Symbol.dispose]()
      assert.ok(second)
    }
    const [, start, other, end, otherEnd, ...none] = library.events
    assert.deepEqual([start.text, start.payload, other.text, other.payload], ['first', 1, 'second', null])
    assert.deepEqual([end.handle, otherEnd.handle], [2n ** 60n, 2n ** 60n + 1n])
    assert.deepEqual(none, [])
  })

  it('names streams and memory', () => {
    const { nvtx, library } = fakeNvtx()
    nvtx.nameStream({ handle: 0x7f12_3456_7890 }, 'copies')
    nvtx.nameMemory(0x7fab_cdef_0100, 'weights')
    assert.deepEqual(library.events, [
      { call: 'nvtxNameCuStreamA', handle: 0x7f12_3456_7890, text: 'copies' },
      { call: 'nvtxDomainCreateA', text: 'cuda-mempool' },
      { call: 'nvtxMemRegionsName', text: 'weights', payload: 0x7fab_cdef_0100 },
    ])
  })

  it('without the memory extension only naming memory fails', () => {
    const { nvtx, library } = fakeNvtx(['nvtxMemRegionsName'])
    for (const call of [() => nvtx.checkNamesMemory(), () => nvtx.nameMemory(256, 'weights')]) {
      assert.throws(call, { name: 'NoLibraryError', message: /has no nvtxMemRegionsName/ })
    }
    nvtx.mark('a')
    assert.deepEqual(library.told(), ['mark a'])
    assert.throws(() => fakeNvtx(['nvtxDomainMarkEx']), { name: 'NoLibraryError', message: /has no nvtxDomainMarkEx/ })
  })

  it('refuses arguments that C would change, without an event', () => {
    const { nvtx, library } = fakeNvtx()
    nvtx.mark('before')
    library.told()
    for (const [name, call] of [
      ['TypeError', () => nvtx.mark(5 as never)],
      ['TypeError', () => nvtx.push(undefined as never)],
      ['TypeError', () => nvtx.nameStream({ handle: 1 }, 5 as never)],
      ['TypeError', () => nvtx.nameMemory(256, null as never)],
      ['RangeError', () => nvtx.mark('a', -1)],
      ['RangeError', () => nvtx.mark('a', 0.5)],
      ['RangeError', () => nvtx.range('a', Number.NaN)],
      ['RangeError', () => nvtx.nameStream({ handle: -1 }, 'a')],
      ['RangeError', () => nvtx.nameMemory(2 ** 53, 'a')],
    ] as const) {
      assert.throws(call, { name }, `${call}`)
    }
    assert.deepEqual(library.told(), [])
  })
})
