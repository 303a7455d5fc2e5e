// A model of the keeper's state: one list of generations and one of waiting requests, searched anew for each answer.

import type { Wanted } from './generation.js'

export interface ModelGeneration {
  readonly number: number
  readonly name: string
  readonly version: string
  readonly device: string
  readonly evictable: boolean
  readonly leasedBytes: number
  readonly writer: number
  state: 'filling' | 'committing' | 'ready' | 'retired'
  pieces: { descriptor: number; bytes: number }[]
  directory: number | null
  /** a client for each time that it has it attached */
  readers: number[]
  lastUse: number
}

export interface ModelWaiter {
  readonly client: number
  readonly request: number
  readonly wanted: Wanted
}

/** `lease 5`, `ready 5`, or `refused quota`. */
export type ModelAnswer = readonly [request: number, answer: string]

export class Model {
  generations: ModelGeneration[] = []
  waiters: ModelWaiter[] = []
  readonly unfinished = new Set<string>()
  readonly answers: ModelAnswer[] = []
  now = 0

  constructor(
    private readonly maxBytes: number,
    private readonly maxRegions: number,
    private readonly maxDescriptors: number,
    public next: number,
  ) {}

  bytesOf({ state, directory, pieces, leasedBytes }: ModelGeneration): number {
    const bytes = pieces.reduce((sum, piece) => sum + piece.bytes, 0)
    return state === 'ready' || state === 'retired' || directory !== null ? bytes : Math.max(bytes, leasedBytes)
  }

  find(client: number, request: number, wanted: Wanted): void {
    const answer = this.answerTo(client, wanted)
    if (answer === null) this.waiters.push({ client, request, wanted })
    else this.answers.push([request, answer])
  }

  addPieces(client: number, number: number, pieces: ModelGeneration['pieces']): boolean {
    const lease = this.leaseOf(client, number)
    if (lease === undefined) return false
    const grown = { ...lease, pieces: [...lease.pieces, ...pieces] }
    const others = this.generations.filter(each => each !== lease && each.device === lease.device)
    const bytes = [...others, grown].reduce((sum, each) => sum + this.bytesOf(each), 0)
    const isMore = this.bytesOf(grown) > this.bytesOf(lease)
    if ((isMore && bytes > this.maxBytes) || this.open().length + pieces.length > this.maxDescriptors) return false
    lease.pieces = grown.pieces
    lease.state = 'committing'
    return true
  }

  /** `set` has the numbers, and directories. */
  commit(client: number, set: readonly (readonly [number, number])[], clientIsOpen: boolean): boolean {
    const leases = set.map(([number]) => this.leaseOf(client, number))
    const whole = leases.every(lease => lease !== undefined && lease.pieces.length > 0)
    if (!whole || new Set(leases).size < set.length || this.open().length + set.length > this.maxDescriptors)
      return false
    for (const [index, [, directory]] of set.entries()) {
      const lease = leases[index]!
      const old = this.ready(lease.name)
      Object.assign(lease, { directory, state: 'ready', lastUse: this.now, readers: clientIsOpen ? [client] : [] })
      this.unfinished.delete(lease.name)
      if (old !== undefined) this.retire(old)
    }
    for (const lease of leases) this.advance(lease!.name)
    return true
  }

  endLease(client: number, number: number): void {
    const lease = this.leaseOf(client, number)
    if (lease === undefined) return
    this.unfinished.add(lease.name)
    this.remove(lease)
    this.advance(lease.name)
  }

  release(client: number, number: number): void {
    const generation = this.generations.find(each => each.number === number)
    const index = generation?.readers.indexOf(client) ?? -1
    if (generation === undefined || index < 0) return
    generation.readers.splice(index, 1)
    if (!generation.readers.includes(client)) generation.lastUse = this.now
    this.sweep()
  }

  lose(number: number): void {
    const generation = this.generations.find(each => each.number === number)
    if (generation?.state === 'ready' || generation?.state === 'retired') this.remove(generation)
  }

  end(client: number): void {
    this.waiters = this.waiters.filter(each => each.client !== client)
    for (const generation of this.generations.filter(each => each.readers.includes(client))) {
      generation.readers = generation.readers.filter(each => each !== client)
      generation.lastUse = this.now
    }
    this.sweep()
    for (const { number } of this.generations.filter(each => each.writer === client)) this.endLease(client, number)
  }

  drop(name: string, force: boolean): boolean {
    const of = this.generations.filter(each => each.name === name)
    const [ready, lease] = [this.ready(name), this.lease(name)]
    const wasMarked = this.unfinished.delete(name)
    const droppable = of.filter(each => each === ready || (force && each !== lease))
    if (droppable.length === 0 && !wasMarked && !(force && lease !== undefined)) return false
    for (const each of droppable) if (force) this.remove(each)
    if (!force && ready !== undefined) this.retire(ready)
    if (force && lease !== undefined) this.endLease(lease.writer, lease.number)
    return true
  }

  /** All regions without readers. */
  prune(): void {
    for (const each of this.generations.filter(({ state, readers }) => state === 'ready' && readers.length === 0)) {
      this.remove(each)
    }
    this.unfinished.clear()
  }

  /** The descriptors that are kept. */
  open(): number[] {
    return this.generations.flatMap(({ directory, pieces }) => [
      ...(directory === null ? [] : [directory]),
      ...pieces.map(piece => piece.descriptor),
    ])
  }

  private ready(name: string) {
    return this.generations.find(each => each.name === name && each.state === 'ready')
  }

  private lease(name: string) {
    return this.generations.find(
      ({ name: own, state }) => own === name && (state === 'filling' || state === 'committing'),
    )
  }

  private leaseOf(client: number, number: number) {
    const isLeased = ({ state }: ModelGeneration) => state === 'filling' || state === 'committing'
    return this.generations.find(each => each.number === number && each.writer === client && isLeased(each))
  }

  private answerTo(client: number, wanted: Wanted): string | null {
    const { name, version, device } = wanted
    const [ready, lease] = [this.ready(name), this.lease(name)]
    const fits = (each: ModelGeneration) => version === undefined || each.version === version
    if ((ready ?? lease) !== undefined && (ready ?? lease)!.device !== device.uuid) return 'refused device'
    if (ready !== undefined && fits(ready)) {
      ready.readers.push(client)
      ready.lastUse = this.now
      return `ready ${ready.number}`
    }
    if (wanted.purpose === 'fill') return lease === undefined ? this.leaseFor(client, wanted) : null
    if (lease !== undefined && fits(lease)) return null
    return ready === undefined && this.unfinished.has(name) ? 'refused unfinished' : 'refused absent'
  }

  private leaseFor(client: number, wanted: Wanted): string {
    const { name, version = '', device, bytes, ifFull } = wanted
    const fits = (without: readonly ModelGeneration[]) => {
      const left = this.generations.filter(each => !without.includes(each))
      const kept = left.filter(each => each.device === device.uuid).reduce((sum, each) => sum + this.bytesOf(each), 0)
      return kept + bytes <= this.maxBytes && left.length < this.maxRegions
    }
    const idle = this.generations
      .filter(each => each.state === 'ready' && each.readers.length === 0 && each.device === device.uuid)
      .sort((a, b) => a.lastUse - b.lastUse)
    const mayGo = idle.filter(
      each => (ifFull === 'replace' && each.name === name) || (ifFull === 'evictUnused' && each.evictable),
    )
    const enough = [...mayGo, null].findIndex((_, count) => fits(mayGo.slice(0, count)))
    if (enough < 0) return 'refused quota'
    for (const each of mayGo.slice(0, enough)) this.remove(each)
    const number = this.next++
    const evictable = wanted.labels['evictable'] === 'yes'
    const own = { number, name, version, device: device.uuid, evictable, leasedBytes: bytes, writer: client }
    this.generations.push({ ...own, state: 'filling', pieces: [], directory: null, readers: [], lastUse: this.now })
    return `lease ${number}`
  }

  /** Answers the first request of a name that can be answered, a writer's before a reader's, again and again. */
  private advance(name: string): void {
    for (const purpose of ['fill', 'read']) {
      for (const waiter of this.waiters.filter(({ wanted }) => wanted.name === name && wanted.purpose === purpose)) {
        const answer = this.answerTo(waiter.client, waiter.wanted)
        if (answer === null) continue
        this.waiters = this.waiters.filter(each => each !== waiter)
        this.answers.push([waiter.request, answer])
      }
    }
  }

  private retire(generation: ModelGeneration): void {
    generation.state = 'retired'
    this.sweep()
  }

  private sweep(): void {
    this.generations = this.generations.filter(({ state, readers }) => state !== 'retired' || readers.length > 0)
  }

  private remove(generation: ModelGeneration): void {
    this.generations = this.generations.filter(each => each !== generation)
  }
}
