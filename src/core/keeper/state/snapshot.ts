// The keeper's state as JSON. The descriptors of its generations go with it, in their order, and a successor takes over
// both.

import { KeepError } from '../../base/errors.js'
import { BYTES, COUNT, DEVICE, LABELS, NAME, REGION, VERSION, WANTED } from '../messages.js'
import { fields, flag, listOf, oneOf, type Shaped, wholeFrom } from '../shape.js'
import { type Client, Generation } from './generation.js'
import type { KeptRegions } from './kept-regions.js'

/** Rises when a field changes its meaning. Keepers read the snapshots of the version before, too. */
const FORMAT = 1
const NO_CLIENT = -1
const CLIENT = wholeFrom(NO_CLIENT)

const SNAPSHOT = fields({
  format: wholeFrom(FORMAT, FORMAT),
  /** the number of the first keeper */
  keeper: COUNT,
  /** the number of the next generation */
  next: COUNT,
  generations: listOf(
    fields({
      number: COUNT,
      name: NAME,
      version: VERSION,
      device: DEVICE,
      labels: LABELS,
      state: oneOf('filling', 'committing', 'ready', 'retired'),
      leasedBytes: BYTES,
      contentBytes: COUNT,
      created: COUNT,
      lastUse: COUNT,
      directory: flag,
      pieces: listOf(BYTES, Infinity),
      /** its process, and its place among the clients */
      writer: fields({ pid: COUNT, client: CLIENT }),
      readers: listOf(fields({ client: CLIENT, count: BYTES }), Infinity),
    }),
    Infinity,
  ),
  unfinished: listOf(REGION, Infinity),
  waiting: listOf(fields({ client: CLIENT, request: COUNT, wanted: WANTED }), Infinity),
})

export type Snapshot = Shaped<typeof SNAPSHOT>

/** The state of some generations, and of the requests of these clients. */
export function snapshotOf(
  regions: KeptRegions,
  keeper: number,
  generations: readonly Generation[],
  clients: readonly Client[],
): Snapshot {
  return {
    format: FORMAT,
    keeper,
    next: regions.next,
    generations: generations.map(each => factsOf(each, clients)),
    unfinished: regions.unfinished.all(),
    waiting: regions
      .waiters()
      .flatMap(({ client, request, wanted }) =>
        clients.includes(client) ? [{ client: clients.indexOf(client), request, wanted }] : [],
      ),
  }
}

/** A generation in a snapshot, with its readers among these clients. */
export function factsOf(generation: Generation, clients: readonly Client[]): Snapshot['generations'][number] {
  const { number, name, version, device, labels, state, leasedBytes, contentBytes, created, lastUse } = generation
  const readers = [...generation.readers].map(([client, count]) => ({ client: clients.indexOf(client), count }))
  return {
    ...{ number, name, version, device, labels, state, leasedBytes, contentBytes, created, lastUse },
    directory: generation.directory !== null,
    pieces: generation.pieces.map(piece => piece.bytes),
    writer: { pid: generation.writer.pid, client: clients.indexOf(generation.writer) },
    readers: readers.filter(({ client }) => client !== NO_CLIENT),
  }
}

/** Reads a snapshot. Throws KeepError 'protocol' for anything else. */
export function snapshotIn(bytes: Uint8Array): Snapshot {
  let value: unknown
  try {
    value = JSON.parse(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString())
  } catch {
    throw new KeepError('the state of the keeper cannot be read; use the same cuda-mempool', 'protocol')
  }
  return SNAPSHOT(value, 'the state of the keeper')
}

/**
 * Puts the generations of a snapshot into a new keeper's state. `descriptorsOf` returns the descriptors of a
 * generation, its directory first, or null if they are not there: then the generation is left out.
 */
export function restore(
  { generations, unfinished, waiting }: Snapshot,
  regions: KeptRegions,
  clients: readonly Client[],
  descriptorsOf: (generation: Snapshot['generations'][number]) => readonly number[] | null,
): void {
  for (const facts of generations) {
    const descriptors = descriptorsOf(facts)
    if (descriptors === null) continue
    const { number, name, version, device, labels, leasedBytes, created } = facts
    const writer = clients[facts.writer.client] ?? { pid: facts.writer.pid, isOpen: false, waiting: 0 }
    const generation = new Generation(number, name, version, device, labels, leasedBytes, writer, created)
    const pieces = facts.directory ? descriptors.slice(1) : descriptors
    generation.state = facts.state
    generation.isSealed = !generation.isLeased
    generation.directory = facts.directory ? descriptors[0] : null
    generation.contentBytes = facts.contentBytes
    generation.lastUse = facts.lastUse
    generation.pieces = facts.pieces.map((bytes, index) => ({ bytes, descriptor: pieces[index] }))
    for (const { client, count } of facts.readers) generation.readers.set(clients[client], count)
    regions.restore(generation)
  }
  for (const mark of unfinished) regions.unfinished.restore(mark)
  for (const { client, request, wanted } of waiting) regions.find(clients[client], request, wanted)
}
