// Paths and queries in commands that are printed to be copied.

import { printable, quotedWord } from '../../../core/base/shown-text.js'

const SAFE_WORD_OF_WINDOWS = /^[\w@+=:./\\-]+$/

/**
 * A text as one word of a shell, which no command takes for an option. Unseen letters become question marks. The shells
 * of Windows know double quotes only, which no file name there has.
 */
export function shellWord(text: string, platform: string = process.platform): string {
  const word = printable(text.startsWith('-') ? `./${text}` : text)
  if (platform !== 'win32') return quotedWord(word)
  return SAFE_WORD_OF_WINDOWS.test(word) ? word : `"${word}"`
}
