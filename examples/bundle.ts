// Bundles a program with esbuild, and runs the bundle. The package stays outside of it, since it opens files of its own
// at run time.
// docs/recipes/bundle.md explains it. In a clone: npm run build && node dist/examples/bundle.js

import { rmSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { build } from 'esbuild'

const PROGRAM = `
import { MiB, openDevice } from 'cuda-mempool'

const device = openDevice('auto')
const pool = device.createSharedPool() // with a thread of its own, whose file no bundle has
const buffer = pool.allocate(3 * MiB)
console.log('in the bundle:', buffer.byteLength, 'bytes')
buffer.free()
device.close()
`

const outfile = new URL('bundled.mjs', import.meta.url) // node_modules of this folder or of one above has the package
const { metafile } = await build({
  stdin: { contents: PROGRAM, resolveDir: import.meta.dirname },
  outfile: fileURLToPath(outfile),
  bundle: true,
  platform: 'node',
  format: 'esm',
  external: ['cuda-mempool'],
  metafile: true,
})
const [bundled] = Object.values(metafile.outputs)
console.log(`outside: ${bundled?.imports.map(({ path }) => path).join(', ')}`)
await import(outfile.href)
rmSync(outfile)
