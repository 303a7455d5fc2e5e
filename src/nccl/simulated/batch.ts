// The calls of one rank in a group, or a single call, as work of its streams. The rank first gives its data. It takes
// the results once all other ranks have given theirs, and then waits until its messages are received. NCCL runs the
// calls of a group at the same time, so here each group reads all its input before it writes.
//
// NCCL runs the groups of a communicator one after another, in the order of the calls and of the launches of graphs, on
// whichever streams.

import type { Collective, MemoryRange } from './collectives.js'
import type { SimulatedRank } from './rank.js'
import type { RankQueue, RankStep } from './rank-device.js'

/** A send to a peer, or a receive from one. */
export interface Message {
  readonly kind: 'send' | 'receive'
  readonly peer: number
  /** the elements, which must be the same on both sides */
  readonly text: string
  readonly range: MemoryRange
}

/** Calls of one rank that are submitted together. */
export class Batch {
  readonly collectives: Collective[] = []
  readonly messages: Message[] = []
  private readonly queues = new Set<RankQueue>()

  constructor(readonly rank: SimulatedRank) {}

  addCollective(queue: RankQueue, collective: Collective): void {
    this.queues.add(queue)
    this.collectives.push(collective)
  }

  addMessage(queue: RankQueue, message: Message): void {
    this.queues.add(queue)
    this.messages.push(message)
  }

  /** Checks the order of calls against the other ranks'. Captured calls are compared when they run. */
  announce(): void {
    const isCaptured = [...this.queues].some(queue => queue.capture !== null)
    if (!isCaptured) for (const { text } of this.collectives) this.rank.announce(text)
  }

  /** Submits the work to the first stream; the others wait for it. */
  submit(): void {
    const { device, latest } = this.rank
    const [first, ...others] = this.queues
    for (const other of others) device.follow(first, device.submitted(other))
    if (latest !== null) device.follow(first, latest)
    device.submitSteps(first, queue => new Run(this, queue).steps)
    this.rank.latest = device.submitted(first)
    for (const other of others) device.follow(other, this.rank.latest)
  }

  get text(): string {
    return [...this.collectives, ...this.messages].map(({ text }) => text).join(', ')
  }
}

/** One run of a batch. A captured batch runs at each launch of its graph. */
export class Run {
  private readonly rank: SimulatedRank
  /** the number of its collectives in the world; -1 without collectives */
  private number = -1
  /** the numbers of its messages between the two ranks */
  private readonly sends: { peer: number; number: number }[] = []
  private readonly receives: { message: Message; number: number }[] = []

  constructor(
    private readonly batch: Batch,
    /** the stream that it runs on */
    readonly queue: RankQueue,
  ) {
    this.rank = batch.rank
    this.rank.runs.push(this)
  }

  get steps(): RankStep[] {
    const { rank } = this
    const turn = () => `${rank.name} waits in ${this.batch.text} for its earlier calls`
    return [
      { gate: this.gate(() => rank.runs[0] === this, turn), effect: this.effect(() => this.give()) },
      { gate: this.gateOf(() => this.missing), effect: this.effect(() => this.take()) },
      { gate: this.gateOf(() => this.unreceived), effect: this.effect(() => rank.runs.shift()) },
    ]
  }

  /** A gate that an abort opens. */
  private gate(isOpen: () => boolean, stuck: () => string | null) {
    return { isOpen: () => this.rank.isAborted || isOpen(), stuck }
  }

  /** Opens when `missing` names no rank. */
  private gateOf(missing: () => number[]) {
    const stuck = () => {
      const reasons = missing().map(rank => this.rank.absence(rank))
      const mayOpen = reasons.length === 0 || reasons.includes(null) // a rank may have come by now
      return mayOpen ? null : `${this.rank.name} waits in ${this.batch.text} for ${reasons.join(' and ')}`
    }
    return this.gate(() => missing().length === 0, stuck)
  }

  /** Work that passes without effect after an abort. */
  private effect(work: () => void): () => void {
    return () => {
      if (!this.rank.isAborted) work()
    }
  }

  /** The ranks that have not given what this one takes. */
  private get missing(): number[] {
    const { world, ranks, rank } = this.rank
    const others = this.number < 0 ? [] : Array.from({ length: ranks }, (_, other) => other)
    const silent = others.filter(other => !world.hasContribution(this.number, other))
    const unsent = this.receives.filter(({ message, number }) => !world.hasMessage(message.peer, rank, number))
    return [...new Set([...silent, ...unsent.map(({ message }) => message.peer)])]
  }

  /** The ranks that have not received a message of this one. */
  private get unreceived(): number[] {
    const { world, rank } = this.rank
    return this.sends.filter(({ peer, number }) => world.hasMessage(rank, peer, number)).map(({ peer }) => peer)
  }

  private give(): void {
    const { rank, batch } = this
    for (const message of batch.messages) {
      const { kind, peer, text, range } = message
      if (kind === 'receive') this.receives.push({ message, number: rank.received[peer]++ })
      else {
        const number = rank.sent[peer]++
        rank.world.send(peer, number, { texts: [text], parts: [this.read(text, range)] })
        this.sends.push({ peer, number })
      }
    }
    const { collectives } = batch
    if (collectives.length === 0) return
    this.number = rank.batches++
    const texts = collectives.map(({ text }) => text)
    rank.world.contribute(this.number, { texts, parts: collectives.map(({ text, sends }) => this.read(text, sends)) })
  }

  private take(): void {
    if (this.number >= 0) this.takeCollectives()
    for (const { message, number } of this.receives) this.takeMessage(message, number)
  }

  private takeCollectives(): void {
    const { world, name, mistakes, ranks } = this.rank
    const { collectives } = this.batch
    const packets = Array.from({ length: ranks }, (_, other) => world.contribution(this.number, other))
    const own = collectives.map(({ text }) => text).join(', ')
    for (const [other, { texts }] of packets.entries()) {
      if (texts.join(', ') === own) continue
      mistakes.report(`the ranks run different calls of NCCL: ${name} ${own}, but rank ${other} ${texts.join(', ')}`)
    }
    const results = collectives.map(({ combine, receives }, i) =>
      receives === null ? null : combine(packets.map(({ parts }) => parts[i])),
    )
    for (const [i, { text, receives }] of collectives.entries()) {
      if (receives !== null) this.write(text, receives, results[i]!)
    }
    world.forget(this.number - 1)
  }

  private takeMessage({ peer, text, range }: Message, number: number): void {
    const { world, mistakes, name } = this.rank
    const packet = world.message(peer, number)
    if (packet.texts[0] !== text) {
      mistakes.report(`${name} receives a message of ${text} from rank ${peer}, which sends ${packet.texts[0]}`)
    }
    this.write(text, range, packet.parts[0])
    world.removeMessage(peer, number)
  }

  private read(call: string, range: MemoryRange | null): Uint8Array {
    const bytes = new Uint8Array(range?.bytes ?? 0)
    if (range === null) return bytes
    this.rank.registrations.checkUse(call, range)
    this.rank.device.memory.read(range.ptr, bytes)
    return bytes
  }

  private write(call: string, range: MemoryRange, result: Uint8Array): void {
    this.rank.registrations.checkUse(call, range)
    this.rank.device.memory.write(range.ptr, result)
  }
}
