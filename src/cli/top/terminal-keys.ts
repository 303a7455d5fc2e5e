// Splits the input of a terminal into keys: one letter each, or a sequence that begins with the escape letter.

const NAMES: Readonly<Record<string, string>> = {
  '\x03': 'interrupt',
  '\r': 'enter',
  '\n': 'enter',
  '\x1b': 'escape',
  '\x1b[A': 'up',
  '\x1b[B': 'down',
  '\x1bOA': 'up',
  '\x1bOB': 'down',
  '\x1b[5~': 'pageUp',
  '\x1b[6~': 'pageDown',
}
// biome-ignore lint/suspicious/noControlCharactersInRegex: terminals send sequences that begin with it
const KEY = /\x1b(?:\[[0-9;]*|O)[A-Za-z~]|./gsu

/** The names of the keys: letters stand for themselves, and unknown sequences for no key. */
export function keysIn(text: string): string[] {
  return (text.match(KEY) ?? []).map(key => NAMES[key] ?? key)
}
