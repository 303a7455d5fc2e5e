import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { fileNames } from './file-arguments.js'

test('on Windows a path with wildcards means the files of its folder that match', t => {
  const folder = mkdtempSync(join(tmpdir(), 'cuda-mempool-files-'))
  t.after(() => rmSync(folder, { recursive: true }))
  for (const name of [
    'rank10.pickle',
    'rank0.pickle',
    'Rank1.PICKLE',
    'rank0.pickle.gz',
    'größe (1)+.csv',
    'rankXpickle',
  ]) {
    writeFileSync(join(folder, name), '')
  }
  const found = (pattern: string) =>
    fileNames(join(folder, pattern), [], 'win32').map(path => path.slice(folder.length + 1))
  assert.deepEqual(found('rank*.pickle'), ['Rank1.PICKLE', 'rank0.pickle', 'rank10.pickle'])
  assert.deepEqual(found('rank?.pickle'), ['Rank1.PICKLE', 'rank0.pickle'])
  assert.deepEqual(found('gr* (1)+.csv'), ['größe (1)+.csv'])
  for (const name of ['none*.pickle', 'none.pickle', 'no-folder/*.pickle']) assert.deepEqual(found(name), [name])
  assert.deepEqual(fileNames('b', ['a'], 'win32'), ['a', 'b'])
})

test('elsewhere the shell has replaced wildcards, and the rest are names', () => {
  assert.deepEqual(fileNames('*.pickle', ['a'], 'linux'), ['a', '*.pickle'])
  for (const platform of ['win32', 'linux']) assert.throws(() => fileNames('', [], platform), /name is empty/)
})
