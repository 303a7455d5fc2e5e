// KEEPER_FUZZ_SEED and KEEPER_FUZZ_STEPS replay and lengthen.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { KeepError } from '../../base/errors.js'
import { Random } from '../../base/random.js'
import type { Client, Wanted } from './generation.js'
import { Model } from './kept-regions.fixture.js'
import { KeptRegions, type Outcome } from './kept-regions.js'
import { pruned, regionsAfter } from './upkeep.js'

const SEED = Number(process.env['KEEPER_FUZZ_SEED'] ?? 1)
const STEPS = Number(process.env['KEEPER_FUZZ_STEPS'] ?? 40_000)
const PROGRAM_STEPS = 400
const [MAX_BYTES, MAX_REGIONS, MAX_DESCRIPTORS] = [100, 9, 40]
const NAMES = ['a', 'b', 'c', '__proto__', '\0 é']
const VERSIONS = ['', 'v1', 'v2', undefined]

/** The keeper's state and its model, which see the same requests. */
class Compared {
  readonly counts = new Map<string, number>()
  private readonly open = new Set<number>()
  private readonly answers: (readonly [number, string])[] = []
  private readonly clients: (Client & { readonly pid: number })[] = []
  private nextDescriptor = 1
  private nextRequest = 1
  private readonly regions: KeptRegions
  private readonly model: Model

  constructor(private readonly random: Random) {
    const first = 1000
    this.model = new Model(MAX_BYTES, MAX_REGIONS, MAX_DESCRIPTORS, first)
    const limits = { maxBytes: MAX_BYTES, maxRegions: MAX_REGIONS, maxDescriptors: MAX_DESCRIPTORS }
    const answer = (_: Client, request: number, outcome: Outcome) => void this.answers.push([request, textOf(outcome)])
    const close = (descriptors: readonly number[]) => {
      for (const each of descriptors) assert.ok(this.open.delete(each), 'a descriptor is closed once')
    }
    this.regions = new KeptRegions(limits, { answer, close, tell() {} }, first, () => this.model.now)
  }

  step(): void {
    this.model.now++
    const { random } = this
    const dice = random.below(100)
    if (this.clients.length === 0 || (dice < 6 && this.clients.length < 6)) this.connect()
    else if (dice < 45) this.find()
    else if (dice < 58) this.addPieces()
    else if (dice < 73) this.commit()
    else if (dice < 85)
      this.withGeneration('release', (client, number) => {
        this.regions.release(client, number)
        this.model.release(client.pid, number)
      })
    else if (dice < 89)
      this.withGeneration('abandon', (client, number) => {
        this.regions.abandon(client, number)
        this.model.endLease(client.pid, number)
      })
    else if (dice < 91)
      this.withGeneration('lose', (_, number) => {
        this.regions.lose(number)
        this.model.lose(number)
      })
    else if (dice < 94) this.end(this.anyClient())
    else if (dice < 96) this.drop()
    else if (dice < 97) this.prune()
    else this.cancel()
  }

  /** Ends all clients, and frees what they leave. */
  drain(): void {
    while (this.clients.length > 0) this.end(this.clients[0])
    this.check()
    this.prune()
    assert.deepEqual([...this.regions.generations, ...this.open], [], 'everything came back')
  }

  check(): void {
    this.regions.check()
    const facts = [...this.regions.generations.values()].map(
      ({ number, name, version, state, bytes, readers, lastUse }) => {
        const attached = [...readers].flatMap(([{ pid }, count]) => Array.from({ length: count }, () => pid))
        return { number, name, version, state, bytes, lastUse, readers: attached.sort() }
      },
    )
    const expected = this.model.generations.map(each => {
      const { number, name, version, state, readers, lastUse } = each
      return { number, name, version, state, bytes: this.model.bytesOf(each), lastUse, readers: [...readers].sort() }
    })
    assert.deepEqual(facts, expected)
    assert.deepEqual([...this.open].sort(ascending), this.model.open().sort(ascending))
    assert.deepEqual(this.answers, this.model.answers)
    assert.deepEqual(
      this.regions.unfinished
        .all()
        .map(({ name }) => name)
        .sort(),
      [...this.model.unfinished].sort(),
    )
    for (const client of this.clients) {
      assert.equal(client.waiting, this.model.waiters.filter(each => each.client === client.pid).length)
    }
    const listed: number[] = []
    assert.equal(regionsAfter(this.regions, 0, { add: ({ generation }) => listed.push(generation) > 0 }), false)
    assert.deepEqual(listed, [...listed].sort(ascending))
  }

  private connect(): void {
    this.clients.push({ pid: this.model.now, isOpen: true, waiting: 0 })
  }

  private find(): void {
    const { random } = this
    const client = this.anyClient()
    const purpose = random.below(3) === 0 ? 'read' : 'fill'
    const wanted: Wanted = {
      name: this.any(NAMES),
      version: this.any(VERSIONS),
      purpose,
      bytes: 1 + random.below(40),
      device: { uuid: random.below(8) === 0 ? 'GPU-2' : 'GPU-1', totalBytes: 1000, simulated: true },
      labels: random.below(2) === 0 ? { evictable: random.below(4) > 0 ? 'yes' : 'no' } : {},
      ifFull: this.any(['fail', 'evictUnused', 'replace']),
    }
    const request = this.nextRequest++
    const result = this.regions.find(client, request, wanted)
    this.model.find(client.pid, request, wanted)
    this.count(result === 'queued' ? 'queued' : this.answers.at(-1)![1].replace(/ \d+/, ''))
  }

  private addPieces(): void {
    const { generation, client } = this.anyLease()
    const pieces = Array.from({ length: 1 + this.random.below(3) }, () => this.piece())
    const first = this.regions.generations.get(generation)?.pieces.length ?? 0
    const added = this.succeeds(() => this.regions.addPieces(client, generation, first, pieces))
    assert.equal(added, this.model.addPieces(client.pid, generation, pieces))
    if (!added) for (const { descriptor } of pieces) this.open.delete(descriptor)
    this.count(added ? 'pieces' : 'refused pieces')
  }

  private commit(): void {
    const first = this.anyLease()
    const set = [first.generation]
    const second = this.anyLease().generation
    if (this.random.below(3) === 0) set.push(second)
    const filled = set.map(generation => ({ generation, directory: this.piece().descriptor }))
    const pieces = (generation: number) => this.regions.generations.get(generation)?.pieces.length ?? 1
    const succeeded = this.succeeds(() => {
      const whole = filled.map(each => ({ ...each, bytes: 1, pieces: pieces(each.generation) }))
      this.regions.publish(this.regions.seal(first.client, whole))
    })
    const directories = filled.map(({ generation, directory }) => [generation, directory] as const)
    assert.equal(succeeded, this.model.commit(first.client.pid, directories, true))
    if (!succeeded) for (const { directory } of filled) this.open.delete(directory)
    this.count(`${succeeded ? '' : 'refused '}commit of ${set.length}`)
  }

  private end(client: Client): void {
    this.clients.splice(this.clients.indexOf(client), 1)
    this.regions.end(client)
    this.model.end(client.pid)
    this.count('end')
  }

  private drop(): void {
    const [name, force] = [this.any(NAMES), this.random.below(2) === 0]
    const dropped = this.succeeds(() => this.regions.drop(name, force))
    assert.equal(dropped, this.model.drop(name, force))
    this.count(dropped ? 'drop' : 'refused drop')
  }

  private prune(): void {
    const all = { all: true, name: undefined, unusedMs: undefined, unfinished: undefined }
    assert.equal(pruned(this.regions, all, { add: () => true }), false)
    this.model.prune()
    this.count('prune')
  }

  private cancel(): void {
    const waiter = this.any(this.model.waiters)
    if (waiter === undefined) return
    this.regions.cancel(this.clients.find(({ pid }) => pid === waiter.client)!, waiter.request)
    this.model.waiters = this.model.waiters.filter(each => each !== waiter)
    this.count('cancel')
  }

  private withGeneration(what: string, work: (client: Client, number: number) => void): void {
    const { generation, client } = this.random.below(2) === 0 ? this.anyLease() : this.anyReader()
    work(client, generation)
    this.count(what)
  }

  /** Often a lease with its client, sometimes another generation or client. */
  private anyLease(): { generation: number; client: Client } {
    const leases = this.model.generations.filter(({ state }) => state === 'filling' || state === 'committing')
    return this.pair(this.any(leases), each => each.writer)
  }

  private anyReader(): { generation: number; client: Client } {
    return this.pair(this.any(this.model.generations), each => each.readers[0])
  }

  private pair<T extends { readonly number: number }>(of: T | undefined, clientOf: (of: T) => number | undefined) {
    const wild = this.random.below(10) === 0 || of === undefined
    const client = wild ? undefined : this.clients.find(({ pid }) => pid === clientOf(of))
    return { generation: of?.number ?? this.random.below(2000), client: client ?? this.anyClient() }
  }

  private piece() {
    const descriptor = this.nextDescriptor++
    this.open.add(descriptor)
    return { descriptor, bytes: 1 + this.random.below(20) }
  }

  private anyClient() {
    return this.any(this.clients)
  }

  private any<T>(items: readonly T[]): T {
    return items[this.random.below(items.length)]
  }

  private succeeds(work: () => void): boolean {
    try {
      work()
      return true
    } catch (error) {
      if (error instanceof KeepError) return false
      throw error
    }
  }

  private count(what: string): void {
    this.counts.set(what, (this.counts.get(what) ?? 0) + 1)
  }
}

function textOf(outcome: Outcome): string {
  return outcome.kind === 'refused' ? `refused ${outcome.error.code}` : `${outcome.kind} ${outcome.generation.number}`
}

const ascending = (a: number, b: number) => a - b

test(`random requests agree with a model (KEEPER_FUZZ_SEED=${SEED} KEEPER_FUZZ_STEPS=${STEPS})`, () => {
  const counts = new Map<string, number>()
  for (let program = 0; program * PROGRAM_STEPS < STEPS; program++) {
    const compared = new Compared(new Random(SEED + program))
    for (let step = 0; step < PROGRAM_STEPS; step++) {
      compared.step()
      compared.check()
    }
    compared.drain()
    for (const [what, count] of compared.counts) counts.set(what, (counts.get(what) ?? 0) + count)
  }
  const expected = ['lease', 'ready', 'queued', 'pieces', 'commit of 1', 'commit of 2', 'end', 'drop', 'cancel']
  const refused = ['absent', 'unfinished', 'quota', 'device', 'pieces', 'commit of 1', 'commit of 2', 'drop']
  for (const what of [...expected, ...refused.map(each => `refused ${each}`)]) {
    const count = counts.get(what) ?? 0
    assert.ok(count > 10, `${what}: ${count}`)
  }
})
