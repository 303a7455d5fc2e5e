// Programs that bundlers have made of a small program: with this package in the bundle, and with the package left out.
// A bundle in which something cannot work says so and how to mend it; it never hangs.

import assert from 'node:assert/strict'
import { renameSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { Project } from './packed.fixture.js'

const PROGRAM = `
  import { MiB, openDevice } from 'cuda-mempool'
  import { createDeviceHeap, deviceIncludePath } from 'cuda-mempool/kernels'
  import { prometheusText } from 'cuda-mempool/live'

  const device = openDevice('simulated')
  const pool = device.createPool()
  const buffer = pool.allocate(3 * MiB)
  const outcomeOf = (name, work) => {
    try {
      console.log(name, work())
    } catch (error) {
      console.log(name, error.name + ': ' + error.message)
    }
  }
  outcomeOf('pool:', () => buffer.byteLength)
  outcomeOf('shared:', () => device.createSharedPool().allocate(2 * MiB).byteLength)
  outcomeOf('heap:', () => createDeviceHeap(device, buffer).statsSync().failures)
  outcomeOf('include:', () => deviceIncludePath().endsWith('cuda'))
  outcomeOf('metrics:', () => /^cuda_mempool_info.version="(unknown|\\d[^"]*)"/m.test(prometheusText(pool)))
  device.close()
`
/** All entry points; esbuild takes the name of the package for that. */
const PACKAGE = /^cuda-mempool\b/
const EVERYTHING_WORKS = 'pool: 3145728\nshared: 2097152\nheap: 0\ninclude: true\nmetrics: true\n'
const FORMATS = ['esm', 'cjs'] as const
type Format = (typeof FORMATS)[number]

/** Bundles the program `entry` to `out`. */
type Bundle = (entry: string, out: string, format: Format, isExternal: boolean) => Promise<unknown>

/** Says what is missing where, and the remedy of each bundler. */
function missing(purpose: string, file: string, place: string): RegExp {
  const remedy =
    'leave cuda-mempool out of the bundle \\(esbuild --external:cuda-mempool, .*Next serverExternalPackages'
  return new RegExp(
    `: MissingFileError: ${purpose}.* needs ${file} of cuda-mempool, which is missing ${place}; ${remedy}`,
  )
}

function checkRefusals(printed: string, place: string): void {
  assert.match(printed, /^pool: 3145728\nshared: M.*\nheap: M.*\ninclude: M.*\nmetrics: true\n$/)
  assert.match(printed, missing('createSharedPool: the thread of a shared pool', 'dist/lib/core/device/\\S+', place))
  assert.match(printed, missing('device memory for kernels', 'cuda/control.ptx', place))
  assert.match(printed, missing('the include path', 'cuda', place))
}

const esbuild: Bundle = async (entry, out, format, isExternal) => {
  const { build } = await import('esbuild')
  const external = isExternal ? ['cuda-mempool'] : []
  // esbuild warns that import.meta is empty in a CommonJS bundle.
  await build({
    entryPoints: [entry],
    outfile: out,
    bundle: true,
    platform: 'node',
    format,
    external,
    logLevel: 'error',
  })
}

const rollup: Bundle = async (entry, out, format, isExternal) => {
  const { rollup } = await import('rollup')
  const { nodeResolve } = await import('@rollup/plugin-node-resolve')
  const { default: commonjs } = await import('@rollup/plugin-commonjs')
  const plugins = [nodeResolve({ preferBuiltins: true }), (commonjs as unknown as typeof commonjs.default)()]
  const made = await rollup({
    input: entry,
    external: isExternal ? [PACKAGE] : [],
    plugins,
    // The second warning is about TypeScript's code for `using`, which guards each `this`.
    onwarn: ({ code, message }) => assert.match(code ?? '', /^UNRESOLVED_IMPORT$|^THIS_IS_UNDEFINED$/, message),
  })
  await made.write({ file: out, format, inlineDynamicImports: true })
  await made.close()
}

const webpack: Bundle = async (entry, out, format, isExternal) => {
  const { default: webpack } = await import('webpack')
  const isModule = format === 'esm'
  const compiler = webpack({
    mode: 'production',
    target: 'node20',
    entry,
    output: { path: join(out, '..'), filename: out.slice(out.lastIndexOf('/') + 1), module: isModule },
    experiments: { outputModule: isModule },
    externals: isExternal ? [PACKAGE] : [],
    externalsType: isModule ? 'module' : 'commonjs',
  })
  await new Promise<void>((resolve, reject) => {
    compiler.run((error, stats) => {
      const complaint = stats?.toString({ all: false, errors: true, warnings: true })
      if (error || complaint !== '') reject(error ?? new Error(complaint))
      else compiler.close(closing => (closing ? reject(closing) : resolve()))
    })
  })
}

const BUNDLERS: Readonly<Record<string, Bundle>> = { esbuild, rollup, webpack }

async function obstacle(bundler: string): Promise<string | false> {
  try {
    await import(bundler)
    return false
  } catch {
    return `${bundler} is not installed`
  }
}

describe('a program bundled by', () => {
  let project: Project
  let entry: string
  before(() => {
    project = new Project()
    entry = project.write('program.mjs', PROGRAM)
  })
  after(() => rmSync(project.folder, { recursive: true }))

  for (const [name, bundle] of Object.entries(BUNDLERS)) {
    for (const format of FORMATS) {
      const outFile = (kind: string) =>
        join(project.folder, 'out', `${name}-${kind}.${format === 'esm' ? 'mjs' : 'cjs'}`)

      test(`${name} as ${format} works where the package is left out`, async t => {
        const skip = await obstacle(name)
        if (skip) return t.skip(skip)
        const out = outFile('external')
        await bundle(entry, out, format, true)
        assert.equal(project.node([out]), EVERYTHING_WORKS)
      })

      test(`${name} as ${format} says which files are missing where the package is inside`, async t => {
        const skip = await obstacle(name)
        if (skip) return t.skip(skip)
        const out = outFile('inside')
        await bundle(entry, out, format, false)
        if (name !== 'webpack') return checkRefusals(project.node([out]), `beside the bundle ${out}`)
        // webpack writes the place of each module into the bundle, so the bundle finds the files until it moves.
        assert.equal(project.node([out]), EVERYTHING_WORKS)
        renameSync(project.installed, `${project.installed}-away`)
        try {
          checkRefusals(project.node([out]), `at ${project.installed}/\\S+`)
        } finally {
          renameSync(`${project.installed}-away`, project.installed)
        }
      })
    }
  }
})
