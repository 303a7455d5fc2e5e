// `cuda-mempool top`: watches a served process in the terminal. Each picture is one write. The terminal is restored at
// every end: by key, by signal, and when the process ends.

import { existsSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import type { ProcessStats } from '../../live/process-stats.js'
import { nextLine } from '../../recordings/report/trace-lines.js'
import { answer } from '../answers.js'
import { columnsOf, isQuiet, paintOf } from '../terminal.js'
import { chosenSocket, TopClient } from './top-client.js'
import { History, type ServedSnapshots, type Shown, topLines } from './top-view.js'

/** The options as text, from the command line. */
export interface TopOptions {
  readonly once?: boolean
  readonly json?: boolean
}

/** The streams of a terminal. */
export interface TopTerminal {
  readonly stdin: Pick<NodeJS.ReadStream, 'on' | 'off' | 'resume' | 'pause'> &
    Partial<Pick<NodeJS.ReadStream, 'isTTY' | 'setRawMode'>>
  readonly stdout: Pick<NodeJS.WriteStream, 'write' | 'on' | 'off'> &
    Partial<Pick<NodeJS.WriteStream, 'isTTY' | 'columns' | 'rows'>>
  readonly env: NodeJS.ProcessEnv
  /** folder of the sockets */
  readonly folder?: string
}

const PERIOD_MS = 500
/** A process that misses four answers in a row is silent. */
const SILENT_MS = 4 * PERIOD_MS
const RECORD_SECONDS = 10
/** Frames of each call stack in a recording. */
const RECORD_STACKS = 8
const USUAL_ROWS = 24
const BEGIN = '\x1b[?1049h\x1b[?25l'
const END = '\x1b[?25h\x1b[?1049l'
const HOME = '\x1b[H'
const ERASE_LINE = '\x1b[K'
const ERASE_BELOW = '\x1b[J'
const CTRL_C = '\x03'

/** Watches a process; resolves when the user or the process ends it. Without a terminal it prints once. */
export async function top(
  target: string | undefined,
  options: TopOptions,
  terminal: TopTerminal = process as unknown as TopTerminal,
  recordSeconds = RECORD_SECONDS,
  patienceMs?: number,
): Promise<void> {
  const client = new TopClient(await chosenSocket(target, terminal.folder), patienceMs)
  const { stdout, env } = terminal
  const isScreen = stdout.isTTY === true && env['TERM'] !== 'dumb'
  if (options.once === true || options.json === true || !isScreen) {
    const stats = await client.stats()
    if (options.json === true) stdout.write(`${answer('top', stats)}\n`)
    else if (!isQuiet()) stdout.write(`${onceText(stats, terminal)}\n`)
    return
  }
  await new TopSession(client, terminal, recordSeconds).run()
}

function onceText(stats: ProcessStats, { stdout, env }: TopTerminal): string {
  const history = new History()
  history.add(stats)
  const shown = { tags: true, streams: false, live: false, paused: false }
  const screen = { stats, history, shown, snapshots: null, message: '', silentMs: 0, hasKeys: false }
  return topLines(screen, columnsOf({ isTTY: stdout.isTTY === true, columns: stdout.columns ?? 0 }), env).join('\n')
}

/** A terminal that shows a process until a key, a signal or the process ends it. */
class TopSession {
  private readonly history = new History()
  private readonly ended = new AbortController()
  private shown: Shown = { tags: true, streams: false, live: false, paused: false }
  private stats: ProcessStats | null = null
  private snapshots: ServedSnapshots | null = null
  private isAsking = false
  private message = ''
  /** since the last answer */
  private silentMs = 0
  private readonly recordings: string[] = []

  constructor(
    private readonly client: TopClient,
    private readonly terminal: TopTerminal,
    private readonly recordSeconds: number,
  ) {}

  async run(): Promise<void> {
    const { stdin, stdout } = this.terminal
    const stop = () => this.ended.abort()
    const restore = () => stdout.write(END)
    stdin.setRawMode?.(true)
    stdin.on('data', this.onKeys)
    stdin.resume()
    stdout.on('resize', this.draw)
    process.once('SIGINT', stop).once('SIGTERM', stop).once('SIGHUP', stop).once('exit', restore)
    stdout.write(BEGIN)
    const clock = setInterval(this.noteTime, PERIOD_MS)
    try {
      await this.client.events(PERIOD_MS, this.ended.signal, stats => this.show(stats))
    } finally {
      clearInterval(clock)
      process.off('SIGINT', stop).off('SIGTERM', stop).off('SIGHUP', stop).off('exit', restore)
      stdout.off('resize', this.draw)
      stdin.off('data', this.onKeys)
      stdin.setRawMode?.(false)
      stdin.pause()
      restore()
    }
    const { stats } = this
    // The lines on the screen are gone, and may have been cut.
    for (const path of this.recordings) stdout.write(`wrote ${path}\n${nextLine('report', path)}\n`)
    if (!this.ended.signal.aborted) stdout.write(`the process ${stats?.pid ?? ''} has ended, or serves no more\n`)
  }

  private readonly noteTime = (): void => {
    this.silentMs += PERIOD_MS
    if (this.silentMs >= SILENT_MS) this.draw()
  }

  private show(stats: ProcessStats): void {
    this.silentMs = 0
    if (this.shown.paused) return
    this.stats = stats
    this.history.add(stats)
    if (this.shown.streams || this.shown.live) void this.askSnapshots()
    this.draw()
  }

  private readonly draw = (): void => {
    const { stats, history, shown, snapshots, message } = this
    const silentMs = this.silentMs >= SILENT_MS ? this.silentMs : 0
    if (stats === null || this.ended.signal.aborted) return
    const { stdout, env } = this.terminal
    const screen = { stats, history, shown, snapshots, message, silentMs, hasKeys: true }
    const lines = topLines(screen, stdout.columns ?? 0, env).slice(0, (stdout.rows ?? USUAL_ROWS) - 1)
    const { bold, dim } = paintOf({ isTTY: true, columns: 0 }, env)
    const paint = silentMs > 0 ? dim : (text: string) => text
    const text = lines.map((line, index) => `${index === 0 ? bold(line) : paint(line)}${ERASE_LINE}\r\n`).join('')
    stdout.write(`${HOME}${text}${ERASE_BELOW}`)
  }

  private readonly onKeys = (data: Buffer | string): void => {
    for (const key of data.toString()) {
      if (key === 'q' || key === CTRL_C) this.ended.abort()
      else if (key === 'p') this.shown = { ...this.shown, paused: !this.shown.paused }
      else if (key === 't') this.shown = { ...this.shown, tags: !this.shown.tags }
      else if (key === 's') this.shown = { ...this.shown, streams: !this.shown.streams }
      else if (key === 'l') this.shown = { ...this.shown, live: !this.shown.live }
      else if (key === 'e') void this.record()
    }
    if (this.shown.streams || this.shown.live) void this.askSnapshots()
    this.draw()
  }

  private async askSnapshots(): Promise<void> {
    if (this.isAsking) return
    this.isAsking = true
    try {
      this.snapshots = await this.client.snapshots(this.ended.signal)
      this.draw()
    } catch (error) {
      this.say((error as Error).message)
    } finally {
      this.isAsking = false
    }
  }

  /** Records the pool with most bytes in use, and writes the recording into this folder. The end of `top` ends it. */
  private async record(): Promise<void> {
    const pools = [...(this.stats?.pools ?? [])].sort((a, b) => b.stats.liveBytes - a.stats.liveBytes)
    if (this.stats === null || pools.length === 0) return
    const [{ name }] = pools
    this.say(`recording the pool ${name} for ${this.recordSeconds} s`)
    try {
      const recording = await this.client.record(name, this.recordSeconds, RECORD_STACKS, this.ended.signal)
      const path = freePath(`cuda-mempool-${this.stats.pid}`)
      writeWhole(path, recording)
      this.say(`wrote ${path}; ${nextLine('report', path)}`)
      this.recordings.push(path)
    } catch (error) {
      this.say((error as Error).message)
    }
  }

  private say(message: string): void {
    this.message = message
    this.draw()
  }
}

/** Writes a file, whole or not at all. */
function writeWhole(path: string, bytes: Buffer): void {
  const part = `${path}.part`
  try {
    writeFileSync(part, bytes)
    renameSync(part, path)
  } catch (error) {
    rmSync(part, { force: true })
    throw error
  }
}

function freePath(name: string): string {
  for (let number = 1; ; number++) {
    const path = `${name}${number === 1 ? '' : `-${number}`}.pickle`
    if (!existsSync(path)) return path
  }
}
