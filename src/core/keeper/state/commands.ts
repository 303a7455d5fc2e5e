// Commands that messages recommend. They can be pasted into a shell, whatever characters a name has.

import { printable, quotedWord } from '../../base/shown-text.js'

/** The command that starts a keeper; `socket` is where, if it is not the usual place. */
export function startCommand(socket: string | null): string {
  return `cuda-mempool keep${at(socket)}`
}

/** The command that drops the region of a name, or with null all regions, without readers. */
export function pruneCommand(name: string | null, socket: string | null): string {
  if (name === null) return `cuda-mempool keep prune --all${at(socket)}`
  const option = name.startsWith('-') ? `--name=${inShell(name)}` : `--name ${inShell(name)}`
  return `cuda-mempool keep prune ${option}${at(socket)}`
}

/** The command that drops the region of a name, and ends its readers and its writer. */
export function forceCommand(name: string, socket: string | null): string {
  const words = name.startsWith('-')
    ? `--force${at(socket)} -- ${inShell(name)}`
    : `${inShell(name)} --force${at(socket)}`
  return `cuda-mempool keep drop ${words}`
}

function at(socket: string | null): string {
  return socket === null ? '' : ` --socket ${inShell(socket)}`
}

/** A text as one word of bash or zsh. Characters that messages do not show are escaped. */
function inShell(text: string): string {
  if (printable(text) === text) return quotedWord(text)
  const escaped = [...text].map(letter =>
    printable(letter) === letter ? letter.replace(/['\\]/, '\\$&') : code(letter),
  )
  return `$'${escaped.join('')}'`
}

/** The bytes of a letter, which bash reads alike in every locale. */
function code(letter: string): string {
  return [...Buffer.from(letter)].map(byte => `\\x${byte.toString(16).padStart(2, '0')}`).join('')
}
