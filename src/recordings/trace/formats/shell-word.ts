// Paths and queries in commands that are printed to be copied.

import { printable } from '../../../core/base/shown-text.js'

const SAFE_WORD = /^[\w@%+=:,./-]+$/
const SAFE_WORD_OF_WINDOWS = /^[\w@+=:./\\-]+$/

/**
 * A text as one word of a shell, which no command takes for an option. Unseen letters become question marks. The shells
 * of Windows know double quotes only, which no file name there has.
 */
export function shellWord(text: string, platform: string = process.platform): string {
  const isWindows = platform === 'win32'
  const word = text.startsWith('-') ? `./${text}` : text
  if ((isWindows ? SAFE_WORD_OF_WINDOWS : SAFE_WORD).test(word)) return word
  return isWindows ? `"${printable(word)}"` : `'${printable(word).replaceAll("'", "'\\''")}'`
}
