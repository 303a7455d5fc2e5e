import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { describe, test } from 'node:test'
import { printed, refused } from './command-line.fixture.js'
import { SHELLS, type Shell } from './completion.js'

/** The names of commands, and the options of one, as the help lists them. */
const listed = (...words: string[]) =>
  [...printed([...words, '--help']).matchAll(/^ {2}(?:(-\w), )?(\S+)/gm)].flatMap(([, short, long]) => [short, long])
const help = printed(['--help'])
const COMMANDS = [...help.matchAll(/^ {2}([a-z]+) (?:\[|<)/gm)].map(([, name]) => name)
const OPTIONS = listed('convert').filter(word => word?.startsWith('-'))

/** Runs a program of a shell; null without the shell. */
function inShell(shell: Shell, program: string): string | null {
  const args = { bash: ['--norc', '-c'], zsh: ['-f', '-c'], fish: ['--no-config', '-c'] }[shell]
  const { error, status, stdout, stderr } = spawnSync(shell, [...args, program], { encoding: 'utf8' })
  if (error !== undefined) return null
  assert.deepEqual([status, stderr], [0, ''], program)
  return stdout
}

/** The words that Tab offers behind some words in bash. */
function inBash(...words: string[]): string[] | null {
  const quoted = words.map(word => `'${word}'`).join(' ')
  const program = `${printed(['completion', 'bash'])}
COMP_WORDS=(cuda-mempool ${quoted}); COMP_CWORD=${words.length}
_cuda_mempool cuda-mempool '${words.at(-1)}' ''; printf '%s\\n' "\${COMPREPLY[@]}"; complete -p cuda-mempool`
  const offered = inShell('bash', program)?.trim().split('\n')
  assert.equal(offered?.pop() ?? FILES, FILES)
  return offered?.filter(word => word !== '') ?? null
}
/** Where a script offers nothing, bash offers files. */
const FILES = 'complete -o default -F _cuda_mempool cuda-mempool'

/** The words that Tab offers behind a line in fish. */
const inFish = (line: string) =>
  inShell('fish', `${printed(['completion', 'fish'])}\ncomplete -C '${line}'`)
    ?.trim()
    .split('\n')
    .map(each => each.split('\t')[0]) ?? null

describe('completion', () => {
  const without = (shell: Shell) => (inShell(shell, 'true') === null ? `no ${shell}` : false)

  test('in bash offers the commands, their options, and files', { skip: without('bash') }, () => {
    assert.deepEqual(inBash(''), COMMANDS)
    assert.deepEqual(inBash('w'), ['why'])
    assert.deepEqual(inBash('help', 'dem'), ['demo'])
    assert.deepEqual(inBash('completion', ''), SHELLS)
    const offered = inBash('convert', '-')!
    assert.deepEqual(
      OPTIONS.filter(option => !offered.includes(option!)),
      [],
    )
    assert.ok(OPTIONS.length > 8 && offered.includes('--quiet') && !offered.includes('--batch'))
    assert.deepEqual(inBash('predict', 'a.pickle', '--ba'), ['--batch'])
    for (const words of [
      ['why', ''],
      ['why', 'run'],
      ['why', '--gpu', '0', ''],
      ['nope', '--'],
    ]) {
      assert.deepEqual(inBash(...words), [], words.join(' '))
    }
  })

  test('in fish offers the same', { skip: without('fish') }, () => {
    assert.deepEqual(inFish('cuda-mempool w'), ['why'])
    assert.deepEqual(inFish('cuda-mempool predict a.pickle --ba'), ['--batch'])
    assert.deepEqual(inFish('cuda-mempool completion ')!.sort(), [...SHELLS].sort())
  })

  test('in zsh is a script that the shell takes', { skip: without('zsh') }, () => {
    inShell('zsh', `autoload -U compinit; compinit -D; ${printed(['completion', 'zsh'])}`)
  })

  test('without a known shell is refused with their names', () => {
    assert.match(refused(['completion']), /missing required argument 'shell'; see cuda-mempool completion --help/)
    assert.match(refused(['completion', 'tcsh']), /'tcsh' is invalid .*bash, zsh, fish/)
  })
})
