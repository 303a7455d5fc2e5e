// Colour and width of the output. Colour is for terminals only, not for pipes, and not with NO_COLOR.

import picocolors from 'picocolors'
import { type Paint, PLAIN } from '../report/table.js'

const USUAL_COLUMNS = 80

type Screen = Pick<NodeJS.WriteStream, 'isTTY' | 'columns'>

export function paintOf(stream: Screen, env: NodeJS.ProcessEnv): Paint {
  const forced = Boolean(env['FORCE_COLOR']) && env['FORCE_COLOR'] !== '0'
  const wanted = forced || (stream.isTTY && env['TERM'] !== 'dumb')
  return wanted && !env['NO_COLOR'] ? picocolors.createColors(true) : PLAIN
}

export function columnsOf(stream: Screen): number {
  return stream.columns || USUAL_COLUMNS
}

/** Writes a result to stdout: plain text, or text in the terminal's style. */
export function print(result: string | ((style: { width: number; paint: Paint }) => string)): void {
  const { stdout } = process
  const text =
    typeof result === 'string' ? result : result({ width: columnsOf(stdout), paint: paintOf(stdout, process.env) })
  stdout.write(`${text}\n`)
}
