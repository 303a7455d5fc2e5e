// Texts of files and of other programs, as people see them: without terminal escapes and invisible letters, and not too
// long.

/** Control characters, which may be terminal escapes, and letters without a shape, which may turn a line around. */
const UNSEEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu
/** The longest text of a recording that is shown. */
const MOST_SHOWN = 300
/** The longest text in JSON: longer than names of templates in C++, which have up to some thousand letters. */
const MOST_IN_JSON = 10_000

/** Replaces each unseen letter by a question mark. */
export function printable(text: string): string {
  return text.replace(UNSEEN, '?')
}

/** A name as messages show it. */
export function shownName(name: string): string {
  return `'${printable(name)}'`
}

/** A text without unseen letters as one word of a shell, which may take it for an option. */
export function quotedWord(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`
}

/** The end of a long text: it tells paths apart. It begins with a whole letter. */
export function shortened(text: string, most = MOST_SHOWN): string {
  if (text.length <= most) return text
  // A low surrogate or an accent belongs to a letter that is left out.
  return `…${text.slice(1 - most).replace(/^[\p{Cs}\p{M}]+/u, '')}`
}

/** The name of a file without its folders. Pages and recordings travel, so the path may be of Windows. */
export function fileName(path: string): string {
  return path.replace(/^.*[/\\](?=.)/s, '')
}

/** A text of a recording as reports show it: printable, and not too long. */
export function shown(text: string): string {
  return printable(shortened(text))
}

/** Text for XML, which has no control characters at all. */
export function xmlText(text: string): string {
  const allowed = printable(text).replace(/[\p{Cs}\ufffe\uffff]/gu, '?')
  return allowed.replace(/[&<>"]/g, letter => `&#${letter.charCodeAt(0)};`)
}

/** A value as JSON in which unseen letters are escaped, and of longer texts only the end is left. */
export function printableJson(value: unknown): string {
  const escaped = (unit: string) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`
  const cut = (_: string, inside: unknown) => (typeof inside === 'string' ? shortened(inside, MOST_IN_JSON) : inside)
  return JSON.stringify(value, cut).replace(UNSEEN, letter => letter.split('').map(escaped).join(''))
}
