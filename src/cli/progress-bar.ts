// A bar on the last line of stderr for work of more than a second. Writes to a terminal are synchronous, so the bar
// moves while the work keeps Node busy.

import { printable } from '../core/base/shown-text.js'
import { inLocale, isQuiet } from './terminal.js'

const SHOW_AFTER_MS = 1000
const REDRAW_INTERVAL_MS = 100
const BAR_COLUMNS = 24
const ERASE_LINE = '\r\x1b[K'

type Screen = Pick<NodeJS.WriteStream, 'isTTY' | 'columns' | 'write'>

export class ProgressBar {
  private readonly visible: boolean
  private readonly start: number
  private drawnAt = -Infinity

  constructor(
    private readonly screen: Screen = process.stderr,
    private readonly now: () => number = () => performance.now(),
  ) {
    this.visible = screen.isTTY && !isQuiet() && process.env['TERM'] !== 'dumb'
    this.start = now()
  }

  /** Draws the bar, if it is due: the share `fraction` (0 to 1) of `what` is done. */
  update(fraction: number, what: string): void {
    if (!this.visible) return
    const now = this.now()
    if (now - this.start < SHOW_AFTER_MS || now - this.drawnAt < REDRAW_INTERVAL_MS) return
    this.drawnAt = now
    const full = Math.round(Math.min(1, Math.max(0, fraction)) * BAR_COLUMNS)
    const bar = '█'.repeat(full) + '░'.repeat(BAR_COLUMNS - full)
    const line = `${bar} ${String(Math.floor(fraction * 100)).padStart(3)} % ${printable(what)}`
    this.screen.write(ERASE_LINE + inLocale(line.slice(0, (this.screen.columns || 80) - 1)))
  }

  /** Removes the bar; call it before other output. */
  clear(): void {
    if (this.drawnAt !== -Infinity) this.screen.write(ERASE_LINE)
    this.drawnAt = -Infinity
  }
}
