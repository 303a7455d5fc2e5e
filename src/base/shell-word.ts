// Paths in commands that are printed to be copied.

const SAFE_WORD = /^[\w@%+=:,./-]+$/

/** A path as one word of a shell, which no command takes for an option. Control characters become question marks. */
export function shellWord(path: string): string {
  const word = path.startsWith('-') ? `./${path}` : path
  if (SAFE_WORD.test(word)) return word
  return `'${word.replace(/\p{Cc}/gu, '?').replaceAll("'", "'\\''")}'`
}
