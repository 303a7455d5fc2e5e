import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { MissingFileError } from './errors.js'
import { codeFile, packageFile } from './package-files.js'
import { packageRoot } from './package-root.js'

test('a file of the package is found where the package is installed', () => {
  const path = packageFile('package.json', 'a test')
  assert.equal(JSON.parse(readFileSync(path, 'utf8')).name, 'cuda-mempool')
})

test('a bundle has no root, and a file that it lacks is named with the remedy', () => {
  const bundle = 'file:///srv/app/server.js'
  assert.equal(packageRoot(bundle), null)
  assert.throws(
    () => packageFile('cuda/control.ptx', 'a test', bundle),
    (error: Error) =>
      error instanceof MissingFileError &&
      /^a test needs cuda\/control\.ptx .* missing beside the bundle \/srv\/app\/server\.js; .*--external:cuda-mempool/.test(
        error.message,
      ),
  )
})

test('a file that is missing below the root is named with its place', () => {
  const moved = 'file:///srv/gone/dist/src/core/base/package-root.js'
  assert.equal(packageRoot(moved), 'file:///srv/gone/')
  assert.throws(() => packageFile('cuda', 'a test', moved), { message: /missing at \/srv\/gone\/cuda; leave/ })
})

test('the bundles of the package have its root, and open bundles', () => {
  const runs = (folder: string) => `file:///srv/app/${folder}/core-base.js`
  assert.equal(packageRoot(runs('cuda-mempool/dist/lib')), 'file:///srv/app/cuda-mempool/')
  const programs = ['dist/core-base.js', 'dist/lib/chunk-2PVX7OZE.js', 'dist/lib/server.js']
  for (const path of programs) assert.equal(packageRoot(`file:///srv/app/${path}`), null, `${path} of a program`)
  const thread = 'core/device/pool-server-thread.js'
  assert.equal(codeFile(thread, 'a test'), fileURLToPath(new URL(`../../${thread}`, import.meta.url)))
  assert.throws(() => codeFile(thread, 'a test', runs('dist/lib')), {
    message: new RegExp(`^a test needs dist/lib/${thread} .* missing at /srv/app/dist/lib/${thread};`),
  })
})
