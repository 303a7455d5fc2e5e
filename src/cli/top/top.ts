// `cuda-mempool top`: watches a served process in the terminal. Each picture is one write. The terminal is restored at
// every end: by key, by signal, and when the process ends.

import { existsSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import type { ProcessStats } from '../../live/process-stats.js'
import { nextLine } from '../../recordings/report/trace-lines.js'
import { answer } from '../answers.js'
import { coloursOf, columnsOf, isQuiet } from '../terminal.js'
import { painted, plainText } from './styled-lines.js'
import { keysIn } from './terminal-keys.js'
import { chosenSocket, TopClient } from './top-client.js'
import { TopModel } from './top-model.js'
import { onceLines, screenLines } from './top-view.js'

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
const USUAL_COLUMNS = 80

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
  const columns = columnsOf({ isTTY: stdout.isTTY === true, columns: stdout.columns ?? 0 })
  return onceLines(stats, columns, env).map(plainText).join('\n')
}

/** A terminal that shows a process until a key, a signal or the process ends it. */
class TopSession {
  private readonly model = new TopModel()
  private readonly ended = new AbortController()
  private isAsking = false
  /** since the last answer */
  private waitedMs = 0
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
    const { stats } = this.model
    // The lines on the screen are gone, and may have been cut.
    for (const path of this.recordings) stdout.write(`wrote ${path}\n${nextLine('report', path)}\n`)
    if (!this.ended.signal.aborted) stdout.write(`the process ${stats?.pid ?? ''} has ended, or serves no more\n`)
  }

  private readonly noteTime = (): void => {
    this.waitedMs += PERIOD_MS
    if (this.waitedMs < SILENT_MS) return
    this.model.silentMs = this.waitedMs
    this.draw()
  }

  private show(stats: ProcessStats): void {
    this.waitedMs = this.model.silentMs = 0
    this.model.add(stats)
    this.askIfShown()
    this.draw()
  }

  private readonly draw = (): void => {
    if (this.model.stats === null || this.ended.signal.aborted) return
    const { stdout, env } = this.terminal
    const lines = screenLines(this.model, stdout.columns || USUAL_COLUMNS, stdout.rows || USUAL_ROWS, env)
    const colours = coloursOf({ isTTY: true, columns: 0 }, env)
    const text = lines.map(line => `${painted(line, colours)}${ERASE_LINE}`).join('\r\n')
    stdout.write(`${HOME}${text}${ERASE_BELOW}`)
  }

  private readonly onKeys = (data: Buffer | string): void => {
    for (const key of keysIn(data.toString())) {
      if (key === 'q' || key === 'interrupt') this.ended.abort()
      else if (key === 'e') void this.record()
      else this.model.press(key)
    }
    this.askIfShown()
    this.draw()
  }

  private askIfShown(): void {
    const { shown, isPaused } = this.model
    if ((shown.streams || shown.live) && !isPaused) void this.askSnapshots()
  }

  private async askSnapshots(): Promise<void> {
    if (this.isAsking) return
    this.isAsking = true
    try {
      this.model.snapshots = await this.client.snapshots(this.ended.signal)
      this.draw()
    } catch (error) {
      this.say((error as Error).message)
    } finally {
      this.isAsking = false
    }
  }

  /** Records the selected pool, and writes the recording into this folder. The end of `top` ends it. */
  private async record(): Promise<void> {
    const { stats, pools, selection } = this.model
    if (stats === null || pools.length === 0) return
    const { name } = pools[selection]
    this.say(`recording the pool ${name} for ${this.recordSeconds} s`)
    try {
      const recording = await this.client.record(name, this.recordSeconds, RECORD_STACKS, this.ended.signal)
      const path = freePath(`cuda-mempool-${stats.pid}`)
      writeWhole(path, recording)
      this.say(`wrote ${path}; ${nextLine('report', path)}`)
      this.recordings.push(path)
    } catch (error) {
      this.say((error as Error).message)
    }
  }

  private say(message: string): void {
    this.model.message = message
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
