// Asks the worker, and knows when everything asked is answered.

import type { RequestName, Requests } from './protocol.js'

/** The bundled worker: `build.ts` puts its text here. */
declare const WORKER_SOURCE: string

export class WorkerClient {
  private readonly worker: Worker
  private readonly waiting = new Map<number, { done(answer: unknown): void; failed(reason: Error): void }>()
  private readonly whenIdle: (() => void)[] = []
  private next = 0
  private busy = 0

  constructor() {
    const url = URL.createObjectURL(new Blob([WORKER_SOURCE], { type: 'text/javascript' }))
    this.worker = new Worker(url)
    this.worker.onmessage = ({ data: { id, answer, error } }) => {
      const entry = this.waiting.get(id)
      this.waiting.delete(id)
      if (error === undefined) entry?.done(answer)
      else entry?.failed(new Error(error))
    }
  }

  ask<Name extends RequestName>(name: Name, asked: Requests[Name]['asked']): Promise<Requests[Name]['answer']> {
    const id = this.next++
    return this.during(
      new Promise((resolve, reject) => {
        this.waiting.set(id, { done: answer => resolve(answer as Requests[Name]['answer']), failed: reject })
        this.worker.postMessage({ id, name, asked })
      }),
    )
  }

  /** Counts work as unfinished until it ends, and what follows it in the same turn. */
  during<T>(work: Promise<T>): Promise<T> {
    this.busy++
    const end = () => setTimeout(() => this.finish())
    work.then(end, end)
    return work
  }

  /** Resolves when all answers have come and are drawn. */
  idle(): Promise<void> {
    if (this.busy === 0) return Promise.resolve()
    return new Promise(resolve => this.whenIdle.push(resolve))
  }

  private finish(): void {
    this.busy--
    if (this.busy > 0) return
    for (const resolve of this.whenIdle.splice(0)) resolve()
  }
}

/** Runs the latest job a while after the last call. `idle` waits for it. */
export class Delayed {
  private timer: ReturnType<typeof setTimeout> | undefined
  /** ends the wait for `timer`, which the next call replaces */
  private ended: () => void = () => {}

  constructor(
    private readonly client: WorkerClient,
    private readonly delayMs: number,
  ) {}

  run(job: () => void): void {
    clearTimeout(this.timer)
    this.ended()
    const wait = new Promise<void>(resolve => {
      this.ended = resolve
      this.timer = setTimeout(() => {
        job()
        resolve()
      }, this.delayMs)
    })
    void this.client.during(wait)
  }
}

/** Runs the latest of several jobs, one at a time: a newer job replaces the one that waits. */
export class Latest {
  private running = false
  private waiting: (() => Promise<void>) | null = null

  run(job: () => Promise<void>): Promise<void> {
    if (this.running) {
      this.waiting = job
      return Promise.resolve()
    }
    this.running = true
    return job().finally(() => {
      this.running = false
      const next = this.waiting
      this.waiting = null
      if (next !== null) return this.run(next)
    })
  }
}
