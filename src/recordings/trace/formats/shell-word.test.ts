import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { test } from 'node:test'
import { shellWord } from './shell-word.js'

test('a path is one word of a shell, and no option', () => {
  for (const path of ['run.pickle', "it's $(here).pickle", '/tmp/a b;c', '~', '*', 'é "x".pickle']) {
    assert.equal(execFileSync('sh', ['-c', `printf %s ${shellWord(path)}`]).toString(), path)
  }
  assert.equal(shellWord('--force'), './--force')
  assert.equal(shellWord('-a b'), "'./-a b'")
  assert.equal(shellWord('red\x1b[31m\n'), "'red?[31m?'")
})
