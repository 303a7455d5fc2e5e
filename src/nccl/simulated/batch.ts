// The calls of one rank in a group, or a single call, as work of its streams. The rank first gives its data. It takes
// the results once all other ranks have given theirs, and then waits until its messages are received. NCCL runs the
// calls of a group at the same time, so here each group reads all its input before it writes.

import type { Collective, MemoryRange } from './collectives.js'
import type { SimulatedRank } from './rank.js'
import type { RankQueue } from './rank-device.js'

/** A send to a peer, or a receive from one. */
export interface Message {
  readonly kind: 'send' | 'receive'
  readonly peer: number
  /** the elements, which must be the same on both sides */
  readonly text: string
  readonly range: MemoryRange
}

/** One run of a batch: the numbers of its parts in the world. A captured batch runs at each launch of its graph. */
interface Run {
  /** of the collectives together; -1 without collectives */
  readonly batch: number
  readonly sends: readonly { readonly peer: number; readonly number: number }[]
  readonly receives: readonly { readonly message: Message; readonly number: number }[]
}

/** Calls of one rank that are submitted together. */
export class Batch {
  private readonly collectives: Collective[] = []
  private readonly messages: Message[] = []
  private readonly queues = new Set<RankQueue>()
  /** runs that have given, and that have taken and wait for their messages */
  private readonly given: Run[] = []
  private readonly taken: Run[] = []

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
    device.submit(first, () => this.give())
    device.submitGated(
      first,
      this.gate(this.given, run => this.missing(run)),
      () => this.take(),
    )
    if (this.messages.some(({ kind }) => kind === 'send')) {
      device.submitGated(
        first,
        this.gate(this.taken, run => this.unreceived(run)),
        () => this.taken.shift(),
      )
    }
    this.rank.latest = device.submitted(first)
    for (const other of others) device.follow(other, this.rank.latest)
  }

  /** Opens when no rank is missing for the first of `runs`. */
  private gate(runs: readonly Run[], missing: (run: Run) => number[]) {
    return {
      isOpen: () => this.rank.isAborted || (runs.length > 0 && missing(runs[0]).length === 0),
      stuck: () => {
        const reasons = missing(runs[0]).map(rank => this.rank.absence(rank))
        const mayOpen = reasons.length === 0 || reasons.includes(null) // a rank may have come by now
        return mayOpen ? null : `${this.rank.name} waits in ${this.text} for ${reasons.join(' and ')}`
      },
    }
  }

  private get text(): string {
    return [...this.collectives, ...this.messages].map(({ text }) => text).join(', ')
  }

  private missing({ batch, receives }: Run): number[] {
    const { world, ranks, rank } = this.rank
    const others = batch < 0 ? [] : Array.from({ length: ranks }, (_, other) => other)
    const silent = others.filter(other => !world.hasContribution(batch, other))
    const unsent = receives.filter(({ message, number }) => !world.hasMessage(message.peer, rank, number))
    return [...new Set([...silent, ...unsent.map(({ message }) => message.peer)])]
  }

  private unreceived({ sends }: Run): number[] {
    const { world, rank } = this.rank
    return sends.filter(({ peer, number }) => world.hasMessage(rank, peer, number)).map(({ peer }) => peer)
  }

  private give(): void {
    const { rank, collectives } = this
    if (rank.isAborted) return
    const sends: { peer: number; number: number }[] = []
    const receives: { message: Message; number: number }[] = []
    for (const message of this.messages) {
      const { kind, peer, text, range } = message
      if (kind === 'receive') receives.push({ message, number: rank.received[peer]++ })
      else {
        const number = rank.sent[peer]++
        rank.world.send(peer, number, { texts: [text], parts: [this.read(text, range)] })
        sends.push({ peer, number })
      }
    }
    let batch = -1
    if (collectives.length > 0) {
      batch = rank.batches++
      const texts = collectives.map(({ text }) => text)
      rank.world.contribute(batch, { texts, parts: collectives.map(({ text, sends }) => this.read(text, sends)) })
    }
    this.given.push({ batch, sends, receives })
  }

  private take(): void {
    if (this.rank.isAborted) return
    const run = this.given.shift()!
    this.taken.push(run)
    if (!this.messages.some(({ kind }) => kind === 'send')) this.taken.pop()
    if (run.batch >= 0) this.takeCollectives(run.batch)
    for (const { message, number } of run.receives) this.takeMessage(message, number)
  }

  private takeCollectives(batch: number): void {
    const { world, name, mistakes, ranks } = this.rank
    const packets = Array.from({ length: ranks }, (_, other) => world.contribution(batch, other))
    const own = this.collectives.map(({ text }) => text).join(', ')
    for (const [other, { texts }] of packets.entries()) {
      if (texts.join(', ') === own) continue
      mistakes.report(`the ranks run different calls of NCCL: ${name} ${own}, but rank ${other} ${texts.join(', ')}`)
    }
    const results = this.collectives.map(({ combine, receives }, i) =>
      receives === null ? null : combine(packets.map(({ parts }) => parts[i])),
    )
    for (const [i, { text, receives }] of this.collectives.entries()) {
      if (receives !== null) this.write(text, receives, results[i]!)
    }
    world.forget(batch - 1)
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
