// Paths in commands that are printed to be copied.

import { printable } from '../../../core/base/shown-text.js'

const SAFE_WORD = /^[\w@%+=:,./-]+$/

/** A path as one word of a shell, which no command takes for an option. Unseen letters become question marks. */
export function shellWord(path: string): string {
  const word = path.startsWith('-') ? `./${path}` : path
  if (SAFE_WORD.test(word)) return word
  return `'${printable(word).replaceAll("'", "'\\''")}'`
}
