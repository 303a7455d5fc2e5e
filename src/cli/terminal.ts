// Colour, width and letters of the output. Colour is for terminals only, not for pipes, and not with NO_COLOR. With
// --quiet only errors and JSON are written.

import picocolors from 'picocolors'
import { printable } from '../core/base/shown-text.js'
import { type Paint, PLAIN } from '../recordings/report/table.js'

const USUAL_COLUMNS = 80

type Screen = Pick<NodeJS.WriteStream, 'isTTY' | 'columns'>

export type Colours = ReturnType<typeof picocolors.createColors>

/** All colours of the terminal. */
export function coloursOf(stream: Screen, env: NodeJS.ProcessEnv): Colours {
  return picocolors.createColors(isColoured(stream, env))
}

export function paintOf(stream: Screen, env: NodeJS.ProcessEnv): Paint {
  return isColoured(stream, env) ? picocolors.createColors(true) : PLAIN
}

function isColoured(stream: Screen, env: NodeJS.ProcessEnv): boolean {
  const forced = Boolean(env['FORCE_COLOR']) && env['FORCE_COLOR'] !== '0'
  const wanted = forced || (stream.isTTY && env['TERM'] !== 'dumb')
  return wanted && !env['NO_COLOR']
}

export function columnsOf(stream: Screen): number {
  return stream.columns || USUAL_COLUMNS
}

const ASCII: Readonly<Record<string, string>> = {
  '─': '-',
  '–': '-',
  '−': '-',
  '×': 'x',
  '✗': 'x',
  '•': '*',
  '→': '>',
  '…': '...',
  µ: 'u',
  '’': "'",
  '█': '#',
  '░': '.',
  '▓': '=',
  '▒': '-',
  '▞': '/',
  '·': ' ',
  '≥': '>=',
  '▁': '_',
  '▂': '.',
  '▃': '-',
  '▄': '~',
  '▅': '=',
  '▆': '+',
  '▇': '*',
}
/** The letters of charts, by how many of their eight dots there are. */
const BRAILLE = /[\u2800-\u28ff]/g
const MANY_DOTS = 5
const OTHERS = new RegExp(`[${Object.keys(ASCII).join('')}]`, 'g')

/** The text in letters that the locale has; without a locale, in UTF-8. */
export function inLocale(text: string, env: NodeJS.ProcessEnv = process.env): string {
  const locale = env['LC_ALL'] || env['LC_CTYPE'] || env['LANG'] || 'UTF-8'
  return /utf-?8/i.test(locale) ? text : text.replace(OTHERS, letter => ASCII[letter]).replace(BRAILLE, shade)
}

function shade(letter: string): string {
  const dots = [...(letter.charCodeAt(0) & 0xff).toString(2)].filter(bit => bit === '1').length
  return dots === 0 ? ' ' : dots < MANY_DOTS ? '.' : '#'
}

/** Emphasis by picocolors. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: terminal escapes begin with it
const EMPHASIS = /([\n\t]|\x1b\[(?:1|2|22|31|32|39)m)/
const LAYOUT = /([\n\t])/

/** Text for a terminal. Of the unseen letters it keeps line feeds, tabs and the emphasis of `paint`. */
function printableLines(text: string, paint: Paint = PLAIN): string {
  const parts = text.split(paint === PLAIN ? LAYOUT : EMPHASIS)
  return parts.map((part, index) => (index % 2 === 1 ? part : printable(part))).join('')
}

let quiet = false

/** Sets whether results and notes are left out. */
export function setQuiet(isQuiet: boolean): void {
  quiet = isQuiet
}

/** Whether results and notes are left out. */
export function isQuiet(): boolean {
  return quiet
}

/** Writes an answer of `answer()` to stdout, also with --quiet. */
export function printJson(json: string): void {
  process.stdout.write(`${json}\n`)
}

/** Writes a result to stdout: plain text, or text in the terminal's style and the locale's letters. */
export function print(result: string | ((style: { width: number; paint: Paint }) => string)): void {
  if (quiet) return
  const { stdout } = process
  const paint = paintOf(stdout, process.env)
  const text = typeof result === 'string' ? result : inLocale(result({ width: columnsOf(stdout), paint }))
  stdout.write(`${printableLines(text, paint)}\n`)
}

/** Writes a note on a result to stderr. */
export function note(text: string): void {
  if (!quiet) say(text)
}

/** Writes a line about a command to stderr, also with --quiet. */
export function say(text: string): void {
  process.stderr.write(inLocale(`cuda-mempool: ${printableLines(text)}\n`))
}
