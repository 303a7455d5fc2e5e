// The journal of a rank: a file that only this rank appends to, and all ranks read. Its first line says which process
// and device the rank has. Each further line is a call that all ranks make together, in their order, or the end.

import * as fs from 'node:fs'
import { join } from 'node:path'
import type { ProcessMark } from './processes.js'

/** The first line of a journal. */
export interface Member extends ProcessMark {
  /** how many ranks it expects */
  readonly ranks: number
  /** tells devices apart */
  readonly device: string
}

/** How a rank has left; '' while it takes part. */
export type Leaving = '' | 'destroyed' | 'aborted'

const LEFT = 'left: '

/** The journal of one rank, up to the last `refresh`. */
export class Journal {
  member: Member | null = null
  readonly calls: string[] = []
  left: Leaving = ''
  private readonly file: string
  private offset = 0

  constructor(folder: string, rank: number) {
    this.file = join(folder, `rank-${rank}`)
  }

  /** Begins the own journal; false if another rank has begun it. */
  begin(member: Member): boolean {
    try {
      fs.writeFileSync(this.file, `${JSON.stringify(member)}\n`, { flag: 'wx', mode: 0o600 })
      return true
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false
      throw error
    }
  }

  append(call: string): void {
    fs.appendFileSync(this.file, `${call}\n`)
  }

  appendEnd(how: Leaving): void {
    this.append(LEFT + how)
  }

  /** Reads what is new. */
  refresh(): this {
    const text = this.newText()
    const lines = text.slice(0, text.lastIndexOf('\n') + 1)
    this.offset += Buffer.byteLength(lines)
    for (const line of lines.split('\n').slice(0, -1)) {
      if (this.member === null) this.member = JSON.parse(line) as Member
      else if (line.startsWith(LEFT)) this.left = line.slice(LEFT.length) as Leaving
      else this.calls.push(line)
    }
    return this
  }

  private newText(): string {
    let descriptor: number
    try {
      descriptor = fs.openSync(this.file, 'r')
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return ''
      throw error
    }
    try {
      const bytes = Buffer.alloc(Math.max(0, fs.fstatSync(descriptor).size - this.offset))
      return bytes.toString('utf8', 0, fs.readSync(descriptor, bytes, 0, bytes.length, this.offset))
    } finally {
      fs.closeSync(descriptor)
    }
  }
}
