// The package as a user gets it, away from all sources and development dependencies. Its command line and its imports
// run from there.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { transform } from 'esbuild'
import { bundled } from '../bundle/bundle.js'
import { Project } from './packed.fixture.js'

describe('the packed package', () => {
  let project: Project
  let installed: string
  before(() => {
    project = new Project()
    installed = project.installed
  })
  after(() => rmSync(project.folder, { recursive: true }))

  const filesOf = (lib: string) =>
    readdirSync(lib, { recursive: true, encoding: 'utf8' }).filter(path => path.endsWith('.js'))
  const declarations = () =>
    readdirSync(installed, { recursive: true, encoding: 'utf8' })
      .filter(path => path.endsWith('.d.ts'))
      .map(path => ({ path, text: readFileSync(join(installed, path), 'utf8') }))

  test('says which file the thread of a shared pool lacks, and the remedy', () => {
    const file = join(installed, 'dist', 'lib', 'core/device/pool-server-thread.js')
    const content = readFileSync(file)
    rmSync(file)
    const program = `
      import { openDevice } from 'cuda-mempool'
      try { openDevice('simulated').createSharedPool() } catch (error) { console.log(error.name, error.message) }`
    const output = project.node(['--input-type=module', '-e', program])
    writeFileSync(file, content)
    assert.match(
      output,
      /^MissingFileError createSharedPool: .*server-thread\.js of cuda-mempool, which is missing at .*; leave cuda-mempool out of/,
    )
  })

  test('holds what it names, and no tests but an example', () => {
    const { main, types, bin, exports } = project.packageJson()
    const named = [main, types, bin, ...Object.values(exports)].flatMap(entry =>
      typeof entry === 'string' ? entry : Object.values(entry),
    )
    assert.ok(named.length >= 8)
    for (const path of named) assert.ok(existsSync(join(installed, path)), path)
    const files = readdirSync(installed, { recursive: true, encoding: 'utf8' })
    assert.deepEqual(
      files.filter(path => /\.(test|suite|fixture|worker)\./.test(path)),
      ['examples/cache.test.ts'],
    )
    for (const name of ['cuda_mempool.cuh', 'control.cu', 'control.ptx']) {
      assert.ok(existsSync(join(installed, 'cuda', name)), name)
    }
    for (const name of ['alerts.yml', 'dashboard.json']) assert.ok(existsSync(join(installed, 'grafana', name)), name)
    assert.ok(existsSync(join(installed, 'deploy', 'cuda-mempool-keep.service')))
    assert.ok(!files.some(path => /^(dist\/)?(test|proof|bench)\b/.test(path)))
    assert.deepEqual(
      files
        .filter(path => path.startsWith('cuda/'))
        .map(path => basename(path))
        .sort(),
      ['control.cu', 'control.ptx', 'cuda_mempool.cuh'],
    )
  })

  test('has documents that link to its files only, except those for the registry, and pictures', () => {
    const documents = readdirSync(installed, { recursive: true, encoding: 'utf8' }).filter(path => path.endsWith('.md'))
    const links = documents
      .filter(document => !['README.md', 'CHANGELOG.md'].includes(document))
      .flatMap(document => {
        const prose = readFileSync(join(installed, document), 'utf8').replace(/^```.*?^```$/gms, '')
        const paths = [...prose.matchAll(/(?<!!)\[[^\]]*\]\((?!\w+:)([^)#\s]+)/g)].map(match =>
          join(dirname(document), match[1]),
        )
        return paths.map(path => ({ document, path }))
      })
    assert.ok(documents.length >= 20 && links.length >= 50, `${documents.length} documents, ${links.length} links`)
    assert.deepEqual(
      links.filter(({ path }) => !existsSync(join(installed, path))),
      [],
    )
  })

  test('declares no generic typed arrays, which TypeScript below 5.7 does not know', () => {
    const generic = declarations().filter(({ text }) => /^[^*/]*\b\w+Array<(Shared)?ArrayBuffer/m.test(text))
    assert.deepEqual(
      generic.map(({ path }) => path),
      [],
      'give the field or result a type, or name it by core/base/typed-arrays.ts',
    )
  })

  test('has JavaScript that is read as it is: one statement a line, and no source maps, whose sources it lacks', () => {
    const files = readdirSync(installed, { recursive: true, encoding: 'utf8' })
    assert.deepEqual(
      files.filter(path => path.endsWith('.map') || (path.endsWith('.ts') && !/^examples\/|\.d\.ts$/.test(path))),
      [],
    )
    for (const path of files.filter(each => /^dist\/lib\/.*\.js$/.test(each))) {
      const text = readFileSync(join(installed, path), 'utf8')
      assert.ok(!text.includes('sourceMappingURL'), path)
      assert.ok(text.length / text.split('\n').length < 400, `${path} has long lines`)
    }
  })

  test('begins the stacks of mistakes with the line of the program, and names its own files by what they hold', () => {
    const program = project.write(
      'stacks.mjs',
      `import { Worker, isMainThread } from 'node:worker_threads'
      import { openDevice } from 'cuda-mempool'
      import { SimulatedDriver } from 'cuda-mempool/simulated'
      const driver = new SimulatedDriver()
      const device = openDevice(driver)
      const first = work => { try { work() } catch ({ stack }) { console.log(stack.split('\\n')[1]) } }
      first(() => device.createPool({ maxPoolBytes: '4MiB' }).allocate(8 << 20))
      if (isMainThread) new Worker(new URL(import.meta.url))
      else {
        driver.failCall({ call: 'cuMemAlloc', code: 999 })
        first(() => device.createPlainPool().allocate(4))
      }`,
    )
    const [ofMain, ofWorker, ofDriver] = project.node([program]).split('\n')
    assert.match(ofMain, /stacks\.mjs:7:\d+\)?$/)
    assert.match(ofWorker, /stacks\.mjs:7:\d+\)?$/)
    assert.match(ofDriver, /\/dist\/lib\/core(-[a-z]+)*\.js:/)
  })

  test('has the bundles of this build', async () => {
    const lib = join(installed, 'dist', 'lib')
    const paths = filesOf(lib)
    const made = await bundled()
    const remedy = 'npm run build bundles again'
    assert.deepEqual(paths.sort(), [...made.keys()].sort(), remedy)
    for (const [path, text] of made) assert.ok(readFileSync(join(lib, path), 'utf8') === text, `${path}: ${remedy}`)
  })

  test('has bundles that assign to no constant', async () => {
    for (const [path, text] of await bundled()) {
      if (!path.endsWith('.js')) continue
      const { warnings } = await transform(text, { logLevel: 'silent' })
      const found = warnings.filter(({ id }) => id === 'assign-to-constant').map(warning => warning.text)
      assert.deepEqual(found, [], `${path}: declare each variable of a module by a \`let\` of its own, by its name`)
    }
  })

  test('has each module in one file, so that all entry points and the command line share it', () => {
    const lib = join(installed, 'dist', 'lib')
    const files = filesOf(lib)
    // esbuild writes the path of each module above its imports and above its code.
    const modulesOf = (path: string) => readFileSync(join(lib, path), 'utf8').match(/^\/\/ dist\/src\/.*$/gm) ?? []
    const modules = files.flatMap(path => [...new Set(modulesOf(path))])
    assert.ok(modules.length > 300, `${modules.length} modules`)
    assert.equal(new Set(modules).size, modules.length)
  })

  test('loads few files for an import', () => {
    const loaded = new Set<string>()
    const load = (file: string) => {
      if (loaded.has(file)) return
      loaded.add(file)
      const imported = readFileSync(file, 'utf8').matchAll(/^(?:import|\} from) "(\.[^"]+)";$/gm)
      for (const [, specifier] of imported) load(join(dirname(file), specifier))
    }
    load(join(installed, project.packageJson().main))
    assert.ok(loaded.size > 2 && loaded.size <= 8, `${loaded.size} files`)
  })

  test('has few files of code, and a keeper loads few of them', () => {
    const lib = join(installed, 'dist', 'lib')
    const { length } = filesOf(lib)
    assert.ok(length <= 35, `${length} files`)
    const [, keeper] = readFileSync(join(lib, 'cli/main.js'), 'utf8').split('\nelse\n')
    const paths = [...keeper.matchAll(/"(\..*\.js)"/g)].map(([, path]) => join(lib, 'cli', path))
    assert.ok(paths.some(path => path.endsWith('run-keeper.js')))
    const bytes = paths.reduce((sum, path) => sum + readFileSync(path).length, 0)
    assert.ok(bytes < 165_000, `${bytes} bytes`)
  })

  test('has classes with the names of the sources, which logs and stacks show', () => {
    const text = (folder: string, ending: string) =>
      readdirSync(folder, { recursive: true, encoding: 'utf8' })
        .filter(path => path.endsWith(ending))
        .map(path => readFileSync(join(folder, path), 'utf8'))
        .join('\n')
    const classes = (code: string) =>
      [...code.matchAll(/^(?:export )?(?:abstract )?class (\w+)/gm)].map(match => match[1])
    const declared = new Set(classes(text(fileURLToPath(new URL('../../src', import.meta.url)), '.ts')))
    const code = text(join(installed, 'dist', 'lib'), '.js')
    const names = classes(code)
    assert.equal([...code.matchAll(/^var \w+ = class\b/gm)].length, 0, 'a class that is a variable')
    assert.ok(names.length > 200, `${names.length} classes`)
    assert.deepEqual(
      names.filter(name => !declared.has(name)),
      [],
      'two classes of one bundle have the same name: rename one',
    )
  })

  test('has at most 1.5 MB', () => {
    const bytes = project.packedBytes()
    assert.ok(bytes > 500_000 && bytes <= 1_500_000, `${bytes} bytes`)
  })

  test('shares a pool with a worker thread', () => {
    const program = project.write(
      'worker.mjs',
      `import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads'
      import { openDevice } from 'cuda-mempool'
      import { attachPool } from 'cuda-mempool/threads'
      if (isMainThread) {
        const device = openDevice('simulated')
        const pool = device.createSharedPool()
        const worker = new Worker(new URL(import.meta.url), { workerData: pool.share() })
        worker.on('message', sent => console.log(pool.adopt(sent).byteLength))
      } else {
        parentPort.postMessage(attachPool(workerData).allocate(300).transfer())
      }`,
    )
    assert.equal(project.node([program]), '300\n')
  })

  test('can be required by CommonJS', () => {
    const program = project.write(
      'program.cjs',
      `const { openDevice } = require('cuda-mempool')
      console.log(openDevice('simulated').createSharedPool().allocate(300).byteLength)`,
    )
    assert.equal(project.node(['--no-warnings', program]), '300\n')
  })

  test('names the calls of the program, not its own', () => {
    const program = project.write(
      'sites.mjs',
      `import { openDevice } from 'cuda-mempool'
      const pool = openDevice('simulated').createPool({ debug: true })
      const mine = () => pool.allocate(300)
      mine()
      console.log(pool.live()[0].allocatedAt)`,
    )
    assert.match(project.node([program]), /^mine \(.*\/sites\.mjs:3:\d+\)\n$/)
  })

  test('has the viewer of pages, with and without data, which are small', () => {
    const viewer = readFileSync(join(installed, 'dist/viewer/viewer.js'))
    assert.ok(viewer.length > 30_000 && viewer.length <= 120_000, `${viewer.length} bytes`)
    assert.ok(!viewer.includes('</script'), 'a script may not hold the end of its own element')
    const whole = readFileSync(join(installed, 'dist/viewer/viewer.html'))
    assert.ok(whole.length > viewer.length && whole.length <= 745_000, `${whole.length} bytes`)
    const page = project.write('page.html', '')
    const recording = join(installed, 'traces', 'oom-retry-2gib.pickle.gz')
    const main = join(installed, project.packageJson().bin['cuda-mempool'])
    project.node([main, 'report', recording, '--policy', 'recorded', '-o', page, '--force'])
    assert.match(readFileSync(page, 'utf8'), /^<!doctype html>.*PyTorch reserved at most 2 GiB/s)
  })

  test('runs commands in a process of 24 descriptors, which reads one file at a time', () => {
    const main = join(installed, project.packageJson().bin['cuda-mempool'])
    const recording = join(installed, 'traces', 'mlp-train-stacks.pickle.gz')
    for (const words of [['--version'], ['demo'], ['why', recording], ['replay', recording, '--policy', 'recorded']]) {
      const limited = ['-c', 'ulimit -n 24; exec "$0" "$@"', process.execPath, main, ...words]
      const { status, stderr } = spawnSync('sh', limited, { encoding: 'utf8' })
      assert.deepEqual([status, stderr], [0, ''], words[0])
    }
  })

  test('runs from its command line', () => {
    const { bin, version } = project.packageJson()
    const main = join(installed, bin['cuda-mempool'])
    assert.ok(readFileSync(main, 'utf8').startsWith('#!/usr/bin/env node\n'))
    assert.equal(project.node([main, '--version']), `${version}\n`)
    assert.match(project.node([main, 'demo']), /simulated GPU.*0, 0\.5, 1, 1\.5/s)
    const recording = join(installed, 'traces', 'mlp-train-stacks.pickle.gz')
    assert.match(project.node([main, 'replay', recording, '--policy', 'recorded']), /PyTorch reserved 198 MiB/)
  })

  test('can be imported by every name it exports', () => {
    const program = project.write(
      'program.mjs',
      `import { existsSync } from 'node:fs'
      import { MiB, openDevice } from 'cuda-mempool'
      import { createDeviceHeap, deviceIncludePath } from 'cuda-mempool/kernels'
      import { SimulatedDriver } from 'cuda-mempool/simulated'
      import { readRecording, replay } from 'cuda-mempool/trace'
      import { prometheusText } from 'cuda-mempool/live'
      const device = openDevice(new SimulatedDriver())
      const pool = device.createPool()
      const buffer = pool.allocate(3 * MiB)
      console.log(buffer.byteLength, typeof readRecording, typeof replay, prometheusText(pool).length > 0)
      console.log(existsSync(deviceIncludePath() + '/cuda_mempool.cuh'), createDeviceHeap(device, buffer).statsSync().failures)
      buffer.free()
      device.close()
      const { exports } = (await import('cuda-mempool/package.json', { with: { type: 'json' } })).default
      const names = Object.keys(exports).filter(name => !name.endsWith('.json'))
      for (const name of names) await import(name.replace('.', 'cuda-mempool'))
      console.log(names.length > 10)`,
    )
    assert.equal(project.node([program]), '3145728 function function true\ntrue 0\ntrue\n')
  })
})
