// Tries the documents: paths exist, programs run, command lines are valid, and tables match the code.
// Programs run on the simulated device, also on a host with a GPU.

import assert from 'node:assert/strict'
import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import * as errors from '../src/core/base/errors.js'
import { CLASSES, classOf, UNIT_BYTES } from '../src/core/heap/size-classes.js'
import { parsePoolOptions } from '../src/core/pool/caching/options.js'
import { CommunicatorError } from '../src/entries/nccl.js'
import { SimulatedDriver } from '../src/entries/simulated.js'
import { MiB, openDevice } from '../src/index.js'
import type { DeviceReport } from '../src/recordings/report/device-text.js'
import { POLICIES } from '../src/recordings/trace/replay-result.js'
import { blocks, ENV, node, ROOT, read, runAll } from './documents.fixture.js'

const json = (path: string) => JSON.parse(read(path))
const README = read('README.md')
const GETTING_STARTED = read('docs/getting-started.md')
const DOCUMENTS = execFileSync('git', ['ls-files', '*.md'], { cwd: ROOT, encoding: 'utf8' }).trim().split('\n')
/** Options in the file that `tsc --init` of TypeScript 6 writes. */
const INIT_OPTIONS = {
  target: 'ESNext',
  noUncheckedIndexedAccess: true,
  exactOptionalPropertyTypes: true,
  verbatimModuleSyntax: true,
  isolatedModules: true,
  noUncheckedSideEffectImports: true,
  moduleDetection: 'force',
}
describe('paths', () => {
  /** Paths in backticks or links, with a folder or a file's ending. */
  const candidates = (text: string) =>
    [...text.matchAll(/`([^`\s]+)`|\]\(([^)\s]+)\)/g)]
      .map(match => match[1] ?? match[2].replace(/#.*$/, ''))
      .filter(name => /^[\w.@-]+(\/[\w.@-]*)+$|^[\w-]+\.(md|ts|js|json|gz)$/.test(name))

  for (const document of DOCUMENTS) {
    test(`that ${document} names exist`, () => {
      const prose = read(document).replace(/^```.*?^```$/gms, '')
      for (const path of candidates(prose)) {
        const subpath = /^cuda-mempool(\/.*)$/.exec(path)
        const exists = subpath
          ? Object.hasOwn(json('package.json').exports, `.${subpath[1]}`)
          : ['.', 'src', dirname(document)].map(folder => join(ROOT, folder, path)).some(each => existsSync(each))
        assert.ok(exists, `${document} names ${path}`)
      }
    })
  }

  test('are found in the text', () => {
    const found = candidates('`src/a.ts`, `docs/`, [b](docs/c.md#part), `pool.ts`, `pool.close()`, `x`, `a / b`')
    assert.deepEqual(found, ['src/a.ts', 'docs/', 'docs/c.md', 'pool.ts'])
    assert.ok(candidates(README).length > 10)
  })
})

describe('links', () => {
  const prose = (document: string) => read(document).replace(/^```.*?^```$/gms, '')
  /** The links of a document, relative to the root: the file, and `#` with the name of a heading or nothing. */
  const linksOf = (document: string) =>
    [...prose(document).matchAll(/\]\((?!\w+:)([^)#\s]*)(#[^)\s]+)?\)/g)].map(([, path, anchor = '']) => ({
      path: path === '' ? document : join(dirname(document), path),
      anchor,
    }))
  const slug = (heading: string) =>
    heading
      .toLowerCase()
      .replace(/[^\w -]/g, '')
      .replaceAll(' ', '-')
  const anchorsOf = (document: string) =>
    [...prose(document).matchAll(/^#+ (.*)$/gm)].map(match => `#${slug(match[1])}`)
  const isDead = ({ path, anchor }: { path: string; anchor: string }) =>
    !existsSync(join(ROOT, path)) || (anchor !== '' && !anchorsOf(path).includes(anchor))

  test('lead to files and headings that there are', () => {
    const links = DOCUMENTS.flatMap(document => linksOf(document).map(link => ({ document, ...link })))
    assert.ok(links.length >= 200, `${links.length} links`)
    assert.deepEqual(links.filter(isDead), [])
  })

  test('of comments name headings that there are', () => {
    const named = readdirSync(join(ROOT, 'src'), { recursive: true, encoding: 'utf8' })
      .filter(name => name.endsWith('.ts'))
      .flatMap(name => [...read(`src/${name}`).matchAll(/(docs\/[\w/-]+\.md)(#[\w-]+)?/g)])
      .map(([, path, anchor = '']) => ({ path, anchor }))
    assert.ok(named.length >= 10, `${named.length} names`)
    assert.deepEqual(named.filter(isDead), [])
  })

  test('stand wherever a document names another one', () => {
    const places = (document: string, name: string) => [name, join(dirname(document), name)]
    const named = DOCUMENTS.flatMap(document =>
      [...prose(document).matchAll(/`([\w./-]+\.md)`/g)]
        .filter(([, name]) => places(document, name).some(path => path !== document && DOCUMENTS.includes(path)))
        .map(([span]) => `${document}: ${span}`),
    )
    assert.deepEqual(named, [])
  })

  test('stand wherever a page for users names a program, and such a page names no other source', () => {
    const pages = DOCUMENTS.filter(document => /^(README|docs\/[^/]+)\.md$/.test(document))
    const named = pages.flatMap(document =>
      [...prose(document).matchAll(/`([\w./-]+\.(ts|cu|cuh))`/g)]
        .filter(([, name]) => existsSync(join(ROOT, name)))
        .map(([span]) => `${document}: ${span}`),
    )
    assert.ok(pages.length >= 20)
    assert.deepEqual(named, [])
  })

  test('lead from the first page of a folder of docs to all pages in it', () => {
    const pages = DOCUMENTS.filter(document => document.startsWith('docs/') && basename(document) !== 'README.md')
    const isListed = (page: string) => linksOf(join(dirname(page), 'README.md')).some(({ path }) => path === page)
    assert.deepEqual(
      pages.filter(page => !isListed(page)),
      [],
    )
  })

  test('are preceded on each page of docs by a line that says for whom the page is', () => {
    const pages = DOCUMENTS.filter(document => document.startsWith('docs/'))
    assert.deepEqual(
      pages.filter(document => !/^# .+\n\nFor [^\n]+\.( .*)?\n/.test(read(document))),
      [],
    )
  })
})

describe('programs', () => {
  // Inside the package, so that 'cuda-mempool' is this build; the build is ignored, and so is this.
  const folder = mkdtempSync(join(ROOT, 'dist', 'documents-'))
  let keeper: ChildProcess
  before(async () => {
    const words = [join(ROOT, 'dist/lib/cli/main.js'), 'keep']
    keeper = spawn(process.execPath, words, { env: ENV, stdio: ['ignore', 'pipe', 'inherit'] })
    await once(keeper.stdout!, 'data')
  })
  after(async () => {
    keeper.kill()
    await once(keeper, 'exit')
    rmSync(folder, { recursive: true })
  })
  /** Programs of the documents but the recipes, which are examples; fragments import nothing and do not run. */
  const typescript = DOCUMENTS.filter(document => !document.startsWith('docs/recipes/')).flatMap(document =>
    blocks(read(document), 'ts')
      .filter(program => program.includes("from 'cuda-mempool'"))
      .map((program, index) => ({ name: `${document} ${index}`, program })),
  )
  const javascript = blocks(GETTING_STARTED, 'js')
  const PRINTED: Record<string, RegExp> = {
    'AGENTS.md 0': /^Float32Array\(3\) \[ 1, 2, 3 \]\n$/,
    'README.md 0': /^Float32Array\(3\) \[ 1, 2, 3 \] CachingPool \{/,
    'docs/debugging.md 0': /^useAfterFree \S+\.js:\d+:\d+ \S+\.js:\d+:\d+\n$/,
    'docs/debugging.md 1': /^0[.\d]* ms\n$/,
    'docs/devices.md 0': /^1\n$/,
    'docs/devices.md 1': /^true 33554432 number\n$/,
    'docs/devices.md 2': /^true 3145728\n$/,
    'docs/element-types.md 0': /^Float32Array\(3\) \[ 1, 0.5, 0.00100040435791015/,
    'docs/errors.md 0': /^200\n$/,
    'docs/graphs.md 0': /^5\n$/,
    'docs/graphs.md 1': /^4 8\n$/,
    'docs/graphs.md 2': /^1\n$/,
    'docs/in-kernel.md 0': /^Float32Array\(3\) \[ 11, 22, 33 \]\n$/,
    'docs/in-kernel.md 1': /^112\n$/,
    'docs/keep.md 0': /^true Float32Array\(3\) \[ 1, 2, 3 \]\n$/,
    'docs/nccl.md 0': /^rank 0: 3 3\nrank 1: 3 3\n$/,
    'docs/pools.md 0': new RegExp(`^${400 * MiB} null\n$`),
    'docs/pools.md 1': /^Float32Array\(2\) \[ 0\.5, 1\.5 \] Int32Array\(1\) \[ 2 \]\n$/,
    'docs/recordings.md 0': /^2097152 bytes, 1 event\n$/,
    'docs/recordings.md 1': /^8 MiB reserved, 0 requests failed\n$/,
    'docs/report.md 0': /^<!doctype html>\n$/,
    'docs/simulated-device.md 0': /^no room for 64 MiB: /,
    'docs/sleep.md 0': /^true 0\n1 2 3\n$/,
    'docs/sleep.md 1': /^5\n6\n5\n32 3\n$/,
    'docs/sleep.md 2': /^7 3\n$/,
    'docs/stream-order.md 0': /^7\n$/,
    'docs/threads.md 0': /^3\n$/,
  }

  test('need types of Node only where they use workers', () => {
    const using = typescript.filter(({ program }) => /'node:|\bprocess\./.test(program))
    assert.deepEqual(
      using.map(({ name }) => name),
      ['docs/graphs.md 2', 'docs/threads.md 0'],
    )
    assert.match(GETTING_STARTED, /`npm install -D @types\/node`/)
  })

  test('compile, as strictly as this project and as tsc --init asks, and print what is expected', () => {
    assert.deepEqual(typescript.map(({ name }) => name).sort(), Object.keys(PRINTED).sort())
    const source = join(folder, 'source')
    mkdirSync(source)
    for (const [index, { program }] of typescript.entries()) writeFileSync(join(source, `${index}.ts`), program)
    for (const [index, program] of javascript.entries()) writeFileSync(join(folder, `${index}.js`), program)
    cpSync(join(ROOT, 'examples'), join(source, 'examples'), { recursive: true })
    const stated = Object.fromEntries(
      [...GETTING_STARTED.matchAll(/`"(\w+)": ([^`]+)`/g)].map(match => [match[1], JSON.parse(match[2])]),
    )
    assert.deepEqual(Object.keys(stated), ['target', 'lib', 'types'])
    const typeRoots = [join(ROOT, 'node_modules/@types')]
    const places = { rootDir: '.', outDir: '../built', declaration: false, typeRoots }
    // Node 24 runs TypeScript whose types can be left out.
    const compilerOptions = { ...INIT_OPTIONS, ...stated, ...places, erasableSyntaxOnly: true }
    const config = { extends: join(ROOT, 'tsconfig.json'), compilerOptions, include: ['**/*.ts'] }
    writeFileSync(join(source, 'tsconfig.json'), JSON.stringify(config))
    node(join(ROOT, 'node_modules/typescript/bin/tsc'), '-p', source)
    const paths = typescript.map((_, index) => join(folder, 'built', `${index}.js`))
    const printed = runAll([...paths, ...javascript.map((_, index) => join(folder, `${index}.js`))])
    for (const [index, { name }] of typescript.entries()) assert.match(printed[index], PRINTED[name], name)
    assert.equal(printed.length, typescript.length + javascript.length)
    assert.ok(javascript.length >= 1)
  })

  test('begin with at most ten lines, which are the first example', () => {
    const { program } = typescript.find(({ name }) => name === 'README.md 0')!
    assert.equal(program, read('examples/first-allocation.ts'))
    assert.ok(program.trimEnd().split('\n').length <= 10)
  })
})

describe('command lines', () => {
  const lines = DOCUMENTS.flatMap(document => blocks(read(document), 'sh')).join('')
  const inProse = DOCUMENTS.flatMap(document => [...read(document).matchAll(/`((?:npm|npx|node) [^`\n]+)`/g)]).map(
    match => match[1],
  )
  const commands = [...lines.trim().split('\n'), ...inProse].flatMap(line => line.split(' && '))

  test('are of four kinds', () => {
    for (const command of commands) {
      assert.match(command, /^(npx cuda-mempool [a-z]+|node (--test )?dist\/|npm |export PYTORCH_)/)
    }
  })

  test('of cuda-mempool name commands, options and files that there are', () => {
    const helps = new Map<string, string>()
    const ours = commands.filter(command => command.startsWith('npx cuda-mempool'))
    assert.ok(ours.length >= 4)
    for (const command of ours) {
      const [, , name, ...rest] = command.split(' ')
      const help = helps.get(name) ?? node(join(ROOT, 'dist/lib/cli/main.js'), name, '--help')
      helps.set(name, help)
      for (const argument of rest) {
        if (argument.startsWith('--')) assert.ok(help.includes(argument), command)
        if (argument.startsWith('traces/')) assert.ok(existsSync(join(ROOT, argument)), command)
      }
      const policies = / --policy (\S+)/.exec(command)?.[1].split(',') ?? []
      for (const policy of policies) assert.ok((POLICIES as readonly string[]).includes(policy), command)
    }
    const listed = read('docs/recordings.md').matchAll(/^\| `(--[a-z-]+)` \|/gm)
    const offered = helps.get('replay')!.matchAll(/^ {2}(--[a-z-]+) /gm)
    const names = (matches: Iterable<RegExpMatchArray>) => [...matches].map(match => match[1]).sort()
    assert.deepEqual(names(listed), names(offered))
  })

  test('of node name programs that there are, with options that they have', () => {
    for (const command of commands.filter(each => each.startsWith('node '))) {
      const [, program, ...rest] = command.replace(' --test', '').split(' ')
      // Programs of bench/ have their common options from there.
      const files = program.includes('/bench/') ? [program, 'dist/bench/options.js'] : [program]
      const source = files.map(file => readFileSync(join(ROOT, file), 'utf8')).join('')
      for (const option of rest.filter(each => each.startsWith('--'))) {
        assert.match(source, new RegExp(`\\b${option.slice(2)}: \\{|option\\('${option}\\b`), command)
      }
    }
  })

  test('of npm name scripts that there are', () => {
    const { scripts } = json('package.json')
    for (const command of commands.filter(each => each.startsWith('npm '))) {
      const [, verb, script = verb] = command.split(' ')
      const known =
        ['ci', 'install', 'login', 'pack', 'pkg', 'publish', 'version'].includes(verb) || Object.hasOwn(scripts, script)
      assert.ok(known, command)
    }
  })

  test('print the report that the recordings page shows', () => {
    const shown = blocks(read('docs/recordings.md'), 'text')[0].trim().split('\n')
    const printed = new Set(node('dist/lib/cli/main.js', 'replay', 'traces/oom-retry-2gib.pickle.gz').split('\n'))
    assert.ok(shown.length > 10)
    assert.deepEqual(
      shown.filter(line => !printed.has(line)),
      [],
    )
  })

  test('run in continuous integration as the README has them', () => {
    const [first, second] = blocks(README, 'sh').map(block => block.trim())
    assert.deepEqual([first, second], ['npm ci && npm start', 'npm ci && npm test'])
    const run = read('.ci/run')
    for (const command of [first, second]) assert.ok(run.includes(`'${command}'`), command)
    assert.match(run, /^set -euo pipefail$/m)
  })
})

describe('tables', () => {
  /** The cells of the table under a heading, row by row without its head. */
  const rows = (document: string, heading: string) => {
    const section = read(document).split(`## ${heading}\n`)[1].split('\n## ')[0]
    const lines = section.split('\n').filter(line => line.startsWith('|'))
    return lines.slice(2).map(line => line.slice(2, -2).split(' | '))
  }
  const names = (cell: string) => [...cell.matchAll(/`(\w+)`/g)].map(match => match[1])

  /** The names that the error for an unknown option lists. */
  const optionsOf = (parse: () => unknown) => {
    let message = ''
    try {
      parse()
    } catch (error) {
      message = (error as Error).message
    }
    return /the options are (.*)$/.exec(message)![1].split(', ').sort()
  }

  test('list every pool option, and every option of the simulated driver', () => {
    const listed = (document: string, heading: string) => rows(document, heading).flatMap(row => names(row[0]))
    const unknown = { none: 1 } as object
    assert.deepEqual(
      listed('docs/pools.md', 'Pool options').sort(),
      optionsOf(() => parsePoolOptions(unknown, 1)),
    )
    assert.deepEqual(
      listed('docs/simulated-device.md', 'Options of `SimulatedDriver`').sort(),
      optionsOf(() => new SimulatedDriver(unknown)),
    )
  })

  test('list every error', () => {
    const ours = [...Object.keys(errors), CommunicatorError.name]
    const listed = [...new Set(rows('docs/errors.md', 'Codes').flatMap(row => names(row[1])))]
    assert.deepEqual(listed.sort(), [...ours, 'TypeError', 'RangeError'].sort())
  })

  test('name the least driver of each feature, and what is lost without it', () => {
    const { features } = JSON.parse(node(join(ROOT, 'dist/lib/cli/main.js'), 'info', '--json')) as DeviceReport
    const expected = features.map(({ name, leastDriver, without }) => [name, `CUDA ${leastDriver}`, without])
    assert.deepEqual(rows('docs/devices.md', 'Least driver'), expected)
  })

  test('and the metrics name every policy and every figure of a replay', () => {
    const metrics = read('docs/metrics.md')
    for (const policy of POLICIES) assert.ok(metrics.includes(`| \`${policy}\` |`), policy)
    const recording = 'traces/mlp-train-stacks.pickle.gz'
    const report = JSON.parse(node(join(ROOT, 'dist/lib/cli/main.js'), 'replay', recording, '--json'))
    const figures = [...Object.keys(report.trace), ...Object.keys(report.runs[0])]
    for (const figure of figures) {
      assert.ok(['file', 'policy'].includes(figure) || metrics.includes(`\`${figure}\``), figure)
    }
  })
})

describe('the walkthrough', () => {
  const text = read('docs/internals/walkthrough.md').replace(/\s+/g, ' ')

  test('names methods and constants that the source has', () => {
    const files = readdirSync(join(ROOT, 'src'), { recursive: true, encoding: 'utf8' })
    const source = files
      .filter(name => name.endsWith('.ts') && !/\.(test|suite)\.ts$/.test(name))
      .map(name => read(`src/${name}`))
    const named = [...text.matchAll(/`([A-Z]\w+)\.(\w+)`|`([A-Z]+_[A-Z_]+)`/g)]
    assert.ok(named.length >= 20)
    for (const [quoted, owner, member, constant] of named) {
      const declares = constant === undefined ? new RegExp(`^(export )?class ${owner}\\b`, 'm') : null
      const hasMember = new RegExp(
        `^ {2,4}((public|protected|private|readonly|override|async|static|get|\\*) ?)*${member}\\b`,
        'm',
      )
      const found = source.some(code =>
        declares === null ? code.includes(`const ${constant} `) : declares.test(code) && hasMember.test(code),
      )
      assert.ok(found, quoted)
    }
  })

  test('has the numbers and driver calls of an allocation', () => {
    const driver = new SimulatedDriver()
    using device = openDevice(driver)
    using pool = device.createPool()
    using stream = device.createStream()
    const callsOf = (work: () => void) => {
      const before = new Map(driver.calls)
      work()
      return [...driver.calls]
        .map(([name, count]) => [name, count - (before.get(name) ?? 0)])
        .filter(each => each[1] !== 0)
    }
    const units = (3 * MiB) / UNIT_BYTES
    assert.ok(
      text.includes(`${units.toLocaleString('en-US')} units`) && text.includes(`: ${classOf(units)} of ${CLASSES}`),
    )

    const calls = callsOf(() => pool.allocate(3 * MiB, stream).free())
    const told = { cuMemCreate: 'is called once', cuMemMap: 'is called once', cuMemSetAccess: 'once' }
    assert.deepEqual(Object.fromEntries(calls), {
      cuMemGetInfo: 1,
      cuMemCreate: 1,
      cuMemMap: 1,
      cuMemSetAccess: 1,
      cuStreamIsCapturing: 1,
      cuThreadExchangeStreamCaptureMode: 2,
    })
    for (const [call, often] of Object.entries(told)) assert.ok(text.includes(`\`${call}\` ${often}`), call)
    assert.deepEqual(
      callsOf(() => pool.allocate(3 * MiB, stream).free()),
      [],
    )
  })
})

describe('the changelog', () => {
  const versions = read('CHANGELOG.md').split(/^## /m).slice(1)

  test('begins with this version, below what is not released yet', () => {
    const [first] = versions.filter(text => !text.startsWith('Unreleased'))
    assert.equal(first.split('\n', 1)[0], json('package.json').version)
  })

  test('is read in two minutes, a version at a time', () => {
    for (const text of versions) {
      const words = text.split(/\s+/).length
      assert.ok(words <= 500, `${text.split('\n', 1)[0]}: ${words} words`)
    }
  })
})

test('the licence is the whole Apache License 2.0', () => {
  const licence = read('LICENSE')
  assert.match(licence, /Apache License\s+Version 2\.0, January 2004/)
  assert.ok(licence.length > 10_000)
  assert.equal(json('package.json').license, 'Apache-2.0')
})
