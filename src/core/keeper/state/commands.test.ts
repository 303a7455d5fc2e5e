// Commands in messages, as bash reads them.

import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { test } from 'node:test'
import { forceCommand, pruneCommand } from './commands.js'

const NAMES = [
  'weights',
  'a b',
  "it's",
  '-x',
  '--all',
  'a\nb',
  '\x1b[31m',
  'l\u202ere',
  "mixed ' \\ \t",
  '$HOME `id`',
  'é',
]

/** The words that a command line of bash has. */
function wordsOf(command: string, locale: string): string[] {
  const script = `cuda-mempool() { printf '%s\\0' "$@"; }; ${command}`
  const env = { ...process.env, LC_ALL: locale }
  return execFileSync('bash', ['-c', script], { encoding: 'utf8', env }).split('\0').slice(0, -1)
}

test('commands name regions of all characters, and the socket', {
  skip: process.platform === 'win32' && 'needs bash',
}, () => {
  for (const [name, locale] of NAMES.flatMap(each => [[each, 'C'] as const, [each, 'C.UTF-8'] as const])) {
    const shown = pruneCommand(name, '/a b')
    assert.doesNotMatch(shown, /\p{Cc}|\p{Cf}/u)
    const option = name.startsWith('-') ? [`--name=${name}`] : ['--name', name]
    assert.deepEqual(wordsOf(shown, locale), ['keep', 'prune', ...option, '--socket', '/a b'], shown)
    const forced = name.startsWith('-') ? ['--force', '--', name] : [name, '--force']
    assert.deepEqual(wordsOf(forceCommand(name, null), locale), ['keep', 'drop', ...forced])
  }
})
