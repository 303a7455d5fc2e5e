import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { test } from 'node:test'
import { shellWord } from './shell-word.js'

test('a path is one word of a shell, and no option', () => {
  for (const path of ['run.pickle', "it's $(here).pickle", '/tmp/a b;c', '~', '*', 'é "x".pickle']) {
    assert.equal(execFileSync('sh', ['-c', `printf %s ${shellWord(path, 'linux')}`]).toString(), path)
  }
  assert.equal(shellWord('--force', 'linux'), './--force')
  assert.equal(shellWord('-a b', 'linux'), "'./-a b'")
  assert.equal(shellWord('red\x1b[31m\n', 'linux'), "'red?[31m?'")
})

test('a path is one word of the shells of Windows', () => {
  for (const path of ['run.pickle', 'C:\\runs\\a_1.pickle', '\\\\host\\share\\run-1.csv']) {
    assert.equal(shellWord(path, 'win32'), path)
  }
  assert.equal(shellWord('C:\\Users\\my name\\run.pickle', 'win32'), '"C:\\Users\\my name\\run.pickle"')
  assert.equal(shellWord("it's, 100%.pickle", 'win32'), '"it\'s, 100%.pickle"')
  assert.equal(shellWord('--force', 'win32'), './--force')
})
