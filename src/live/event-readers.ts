// Server-sent events. All readers get the same text ten times a second at most. A reader that does not keep up misses
// events, and one that takes nothing for a while is dropped, so that memory is bounded.

import type { ServerResponse } from 'node:http'

export const LEAST_PERIOD_MS = 100
export const MOST_PERIOD_MS = 60_000
export const MOST_READERS = 16
/** Events in a row that a reader may miss. */
const MOST_MISSED = 100

interface Reader {
  readonly response: ServerResponse
  readonly periodMs: number
  lastMs: number
  missed: number
}

export class EventReaders {
  private readonly readers = new Set<Reader>()
  private timer: NodeJS.Timeout | null = null

  /** `read` gives the data of an event: one line of text. */
  constructor(private readonly read: () => string) {}

  /** How many readers there are. */
  get count(): number {
    return this.readers.size
  }

  /** Begins to send events, not more often than every `LEAST_PERIOD_MS`; false if there are too many readers. */
  add(response: ServerResponse, periodMs: number): boolean {
    if (this.readers.size >= MOST_READERS) return false
    const reader = { response, periodMs: Math.max(LEAST_PERIOD_MS, periodMs), lastMs: -Infinity, missed: 0 }
    response.writeHead(200, { 'Content-Type': 'text/event-stream' })
    response.on('close', () => this.remove(reader))
    response.on('error', () => this.remove(reader))
    this.readers.add(reader)
    this.timer ??= setInterval(() => this.send(performance.now()), LEAST_PERIOD_MS).unref()
    this.send(performance.now())
    return true
  }

  /** Sends an event to each reader whose turn it is. */
  send(nowMs: number): void {
    let event: string | null = null
    for (const reader of this.readers) {
      // A timer may be early by a part of its period.
      if (nowMs - reader.lastMs < reader.periodMs - LEAST_PERIOD_MS / 2) continue
      reader.lastMs = nowMs
      if (reader.response.writableNeedDrain) {
        if (++reader.missed > MOST_MISSED) reader.response.destroy()
        continue
      }
      reader.missed = 0
      event ??= `data: ${this.read()}\n\n`
      reader.response.write(event)
    }
  }

  close(): void {
    for (const { response } of this.readers) response.end()
    this.readers.clear()
    this.stop()
  }

  private remove(reader: Reader): void {
    this.readers.delete(reader)
    if (this.readers.size === 0) this.stop()
  }

  private stop(): void {
    if (this.timer !== null) clearInterval(this.timer)
    this.timer = null
  }
}
