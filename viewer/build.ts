// Bundles the viewer into dist/viewer: one script with its worker in it, the page's frame, and its style. The page
// without data is whole, with the reader of recordings in it; the site's copy of it, try.html, has samples.

import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type BuildOptions, build, type Plugin } from 'esbuild'
import { framed } from '../src/recordings/report/page/page-frame.js'
import { samplesHtml } from './drop/samples.js'
import { WHOLE_STACKS } from './whole-stacks.js'

const project = join(dirname(fileURLToPath(import.meta.url)), '..', '..')
const [from, to] = [join(project, 'viewer'), join(project, 'dist', 'viewer')]
const OPTIONS: BuildOptions = {
  plugins: [WHOLE_STACKS],
  bundle: true,
  minify: true,
  format: 'iife',
  target: ['chrome123', 'firefox120', 'safari17.5'],
  // Scripts in HTML may not hold the end of their own element.
  supported: { 'inline-script': false },
  charset: 'ascii',
  legalComments: 'none',
  write: false,
  logLevel: 'warning',
}

/** Modules in place of which the reader has `drop/stand-ins/left-out.ts`. */
const LEFT_OUT = [
  'allocate-many',
  'arena-pool',
  'arena-queue',
  'block-pool',
  'capture',
  'capture-arena',
  'compiler',
  'debug-pool',
  'descriptor-passing',
  'device-users',
  'file-contents',
  'file-locks',
  'gate',
  'graph-group',
  'graph-groups',
  'group-arena',
  'growable-buffer',
  'host-places',
  'host-pool',
  'imported-pool',
  'interprocess-buffer',
  'library-device',
  'machine',
  'managed-memory',
  'module',
  'modules',
  'native-driver',
  'pool-memory',
  'registrable-segments',
  'sealed-memory',
  'segment-plan',
  'serve-all',
  'shared-arena-pool',
  'shared-block-pool',
  'shared-host-pool',
  'shared-pool',
  'shared-pools',
  'shelf',
  'side-ranges',
  'staging-buffers',
  'system-calls',
  'unix-socket',
  'warm-up',
]

/** The reader runs code of Node in a browser. A name of Node without a stand-in fails the build. */
const STAND_INS: Plugin = {
  name: 'stand-ins',
  setup({ onResolve }) {
    const standIns = join(from, 'drop', 'stand-ins')
    onResolve({ filter: /^node:/ }, () => ({ path: join(standIns, 'node.ts') }))
    onResolve({ filter: new RegExp(`/(${LEFT_OUT.join('|')})\\.js$`) }, () => ({ path: join(standIns, 'left-out.ts') }))
  },
}
const FOR_READER: BuildOptions = {
  plugins: [STAND_INS],
  inject: [join(from, 'drop', 'stand-ins', 'globals.ts')],
  // Code for the simulated device registers itself, and is never asked for here.
  logOverride: { 'ignored-bare-import': 'silent' },
}

async function bundle(entry: string, define: Record<string, string> = {}, more: BuildOptions = {}): Promise<string> {
  const { outputFiles } = await build({ ...OPTIONS, ...more, entryPoints: [join(from, entry)], define })
  return outputFiles![0].text
}

mkdirSync(to, { recursive: true })
const worker = await bundle('worker.ts')
writeFileSync(join(to, 'viewer.js'), await bundle('main.ts', { WORKER_SOURCE: JSON.stringify(worker) }))
const style = readFileSync(join(from, 'page.css'), 'utf8')
writeFileSync(join(to, 'page.css'), style)
copyFileSync(join(from, 'page.html'), join(to, 'page.html'))
const reader = await bundle('drop/reader.ts', { 'import.meta.url': '"file:///"' }, FOR_READER)
const sources = { WORKER_SOURCE: JSON.stringify(worker), READER_SOURCE: JSON.stringify(reader) }
const script = await bundle('drop/main.ts', sources)
const dialog = readFileSync(join(from, 'drop', 'dialog.html'), 'utf8')
for (const [file, samples] of [
  ['viewer.html', ''],
  ['try.html', samplesHtml()],
]) {
  const data = dialog.replace('{{samples}}\n', () => samples)
  const parts = { title: 'Memory report', style, data, script, fetches: samples !== '' }
  writeFileSync(join(to, file), framed(readFileSync(join(from, 'page.html'), 'utf8'), parts))
}
