// Libraries of others on pooled memory.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'

test('cuBLAS multiplies pooled matrices with a pooled workspace, on a stream and in a graph', context => {
  const path = fileURLToPath(new URL('../examples/cublas.js', import.meta.url))
  const { status, stdout, stderr } = spawnSync(process.execPath, [path], { encoding: 'utf8' })
  assert.deepEqual([status, stderr], [0, ''], stdout)
  if (stdout.startsWith('no cuBLAS')) return context.skip(stdout.trim())
  assert.match(stdout, /: the product is equal to that of the CPU\nafter 3 launches .* is equal to that of the CPU\n/)
  assert.match(stdout, /^4 buffers of the pool were in use/m)
})
