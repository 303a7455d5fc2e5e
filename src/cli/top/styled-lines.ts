// Lines of text with tones, which a terminal shows as colours.

import { printable } from '../../core/base/shown-text.js'
import { type Colours, inLocale } from '../terminal.js'

/** `live`, `cached` and `pending` are uses of memory. */
export type Tone = 'plain' | 'strong' | 'quiet' | 'alarm' | 'selected' | 'live' | 'cached' | 'pending'

export interface Span {
  readonly text: string
  readonly tone: Tone
}

export type Line = readonly Span[]

const SEPARATOR = '   '

export function span(text: string, tone: Tone = 'plain'): Span {
  return { text, tone }
}

/** Texts beside each other. Those beyond `mostLines` lines are left out, save for the first of all. */
export function flow(spans: readonly Span[], width: number, mostLines = Infinity): Line[] {
  const lines: Span[][] = []
  let columns = 0
  for (const each of spans) {
    const more = SEPARATOR.length + each.text.length
    if (lines.length > 0 && columns + more <= width) {
      lines[lines.length - 1].push(span(SEPARATOR), each)
      columns += more
    } else if (lines.length < mostLines) {
      lines.push([each])
      columns = each.text.length
    }
  }
  return lines
}

/** The line in letters that the terminal shows, cut to its width. */
export function fitted(line: Line, width: number, env: NodeJS.ProcessEnv): Line {
  let room = width
  return line.flatMap(({ text, tone }) => {
    const shown = inLocale(printable(text), env).slice(0, room)
    room -= shown.length
    return shown === '' ? [] : [{ text: shown, tone }]
  })
}

export function plainText(line: Line): string {
  return line.map(({ text }) => text).join('')
}

export function painted(line: Line, colours: Colours): string {
  const paints: Record<Tone, (text: string) => string> = {
    plain: String,
    strong: colours.bold,
    quiet: colours.dim,
    alarm: text => colours.bold(colours.red(text)),
    selected: colours.inverse,
    live: colours.blue,
    cached: colours.yellow,
    pending: colours.magenta,
  }
  return line.map(({ text, tone }) => paints[tone](text)).join('')
}
