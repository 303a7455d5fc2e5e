// Builds the live page: script and style into one file, dist/viewer/live.html, which the server sends.
// Run: node viewer/live/build.js

import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { build } from 'esbuild'
import { WHOLE_STACKS } from '../../dist/viewer/whole-stacks.js'

const FOLDER = dirname(fileURLToPath(import.meta.url))
const TARGET = join(FOLDER, '..', '..', 'dist', 'viewer', 'live.html')

/** Writes the page. */
export async function buildLivePage() {
  const { outputFiles } = await build({
    entryPoints: [join(FOLDER, 'main.ts')],
    plugins: [WHOLE_STACKS],
    bundle: true,
    minify: true,
    write: false,
    format: 'iife',
    target: 'es2022',
    legalComments: 'none',
  })
  const uplotCss = createRequire(import.meta.url).resolve('uplot/dist/uPlot.min.css')
  const style = readFileSync(uplotCss, 'utf8') + readFileSync(join(FOLDER, 'page.css'), 'utf8')
  const html = readFileSync(join(FOLDER, 'page.html'), 'utf8')
    .replace('/*style*/', () => style)
    .replace('/*script*/', () => outputFiles[0].text.trim())
  mkdirSync(dirname(TARGET), { recursive: true })
  writeFileSync(TARGET, html)
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await buildLivePage()
