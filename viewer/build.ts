// Bundles the viewer into dist/viewer: one script with its worker in it, the page's frame, and its style.

import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type BuildOptions, build } from 'esbuild'

const project = join(dirname(fileURLToPath(import.meta.url)), '..', '..')
const [from, to] = [join(project, 'viewer'), join(project, 'dist', 'viewer')]
const OPTIONS: BuildOptions = {
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

async function bundle(entry: string, define: Record<string, string> = {}): Promise<string> {
  const { outputFiles } = await build({ ...OPTIONS, entryPoints: [join(from, entry)], define })
  return outputFiles![0].text
}

mkdirSync(to, { recursive: true })
const worker = await bundle('worker.ts')
writeFileSync(join(to, 'viewer.js'), await bundle('main.ts', { WORKER_SOURCE: JSON.stringify(worker) }))
const style = readFileSync(join(from, 'page.css'), 'utf8')
writeFileSync(join(to, 'page.css'), style)
copyFileSync(join(from, 'page.html'), join(to, 'page.html'))
