// Writes the bundles of the package to dist/lib.

import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { bundled } from './bundle.js'

const lib = join(dirname(fileURLToPath(import.meta.url)), '..', 'lib')
const files = await bundled()
rmSync(lib, { recursive: true, force: true })
for (const [path, text] of files) {
  mkdirSync(dirname(join(lib, path)), { recursive: true })
  writeFileSync(join(lib, path), text)
}
