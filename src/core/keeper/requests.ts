// The keeper's answers to requests. Descriptors that came with a request and are kept are taken out of it.

import { KeepError } from '../base/errors.js'
import { MOST_DESCRIPTORS } from '../libraries/unix-socket.js'
import type { Channel, Incoming } from './channel.js'
import { checkDirectory, checkPiece } from './descriptor-check.js'
import { MOST_FIRST_PIECES, MOST_PAGE_BYTES, REQUESTS, type Requests } from './messages.js'
import type { RegionInfo } from './region.js'
import { type Adopted, adopt, type Offered } from './state/adoption.js'
import type { KeptRegions, Outcome } from './state/kept-regions.js'
import { pruned, regionsAfter } from './state/upkeep.js'

export interface Answer {
  readonly body: object
  /** stay open, and the keeper's */
  readonly descriptors?: readonly number[]
}

/** A request of a client. */
interface Asked {
  readonly regions: KeptRegions
  readonly channel: Channel
  readonly request: number
  readonly descriptors: number[]
}

type Known = Exclude<keyof Requests, 'hello' | 'commit' | 'offer' | 'handover' | 'taken'>

const HANDLERS: { readonly [Type in Known]: (asked: Asked, body: Requests[Type]) => Answer | null } = {
  find({ regions, channel, request }, { purpose, bytes = 0, labels = {}, ifFull = 'fail', ...wanted }) {
    if (purpose === 'fill' && bytes === 0) throw new KeepError('find: bytes are needed to fill a region', 'protocol')
    const result = regions.find(channel, request, { ...wanted, purpose, bytes, labels, ifFull })
    if (result === 'queued') channel.send('queued', request, {})
    return null
  },
  cancel({ regions, channel }, { request }) {
    regions.cancel(channel, request)
    return DONE
  },
  pieces({ regions, channel, descriptors }, { generation, first, sizes }) {
    if (sizes.length !== descriptors.length)
      throw new KeepError('pieces: each needs a descriptor and a size', 'protocol')
    const { device } = regions.leaseOf(channel, generation)
    for (const descriptor of descriptors) checkPiece(descriptor, device)
    const pieces = descriptors.map((descriptor, index) => ({ descriptor, bytes: sizes[index] }))
    regions.addPieces(channel, generation, first, pieces)
    descriptors.length = 0
    return DONE
  },
  more({ regions, channel }, { generation, first }) {
    const found = regions.generations.get(generation)
    if (found?.readers.has(channel) !== true)
      throw new KeepError(`generation ${generation} is not attached any more; attach it again`, 'gone')
    const pieces = found.pieces.slice(first, first + MOST_DESCRIPTORS)
    return { body: { sizes: pieces.map(each => each.bytes) }, descriptors: pieces.map(each => each.descriptor) }
  },
  abandon({ regions, channel }, { generation }) {
    regions.abandon(channel, generation)
    return DONE
  },
  release({ regions, channel }, { generation }) {
    regions.release(channel, generation)
    return DONE
  },
  lost({ regions }, { generation }) {
    regions.lose(generation)
    return DONE
  },
  list({ regions }, { after }) {
    const page = new Page()
    const more = regionsAfter(regions, after, page)
    return { body: { regions: page.regions, more } }
  },
  drop({ regions }, { name, force }) {
    regions.drop(name, force)
    return DONE
  },
  prune({ regions }, rule) {
    const page = new Page()
    const more = pruned(regions, rule, page)
    return { body: { regions: page.regions, more } }
  },
  watch({ channel }, { on }) {
    channel.isWatching = on
    return DONE
  },
}
const DONE: Answer = { body: {} }

/** The answer to a request; null if it comes later, or was given. Throws KeepError. */
export function answerTo(regions: KeptRegions, channel: Channel, incoming: Incoming): Answer | null {
  const { type, request, body, descriptors } = incoming
  if (!Object.hasOwn(HANDLERS, type))
    throw new KeepError(`${type} is no request; use the same cuda-mempool`, 'protocol')
  const known = type as Known
  const handle = HANDLERS[known] as (asked: Asked, body: unknown) => Answer | null
  return handle({ regions, channel, request, descriptors }, REQUESTS[known](body, type))
}

/** Notes that a commit was read: the generations, whose directories are checked. Throws KeepError. */
export function sealed(regions: KeptRegions, channel: Channel, { body, descriptors }: Incoming) {
  const { set } = REQUESTS.commit(body, 'commit')
  if (set.length === 0 || set.filter(each => each.directory).length !== descriptors.length)
    throw new KeepError('commit: it names other directories than it carries', 'protocol')
  descriptors.forEach(checkDirectory)
  let next = 0
  const filled = set.map(each => ({ ...each, directory: each.directory ? descriptors[next++] : null }))
  const generations = regions.seal(channel, filled)
  descriptors.length = 0
  return generations
}

/** Takes what the client of a keeper before offers, if this one does not have it. Throws KeepError. */
export function offered(regions: KeptRegions, channel: Channel, { body, descriptors }: Incoming): Adopted {
  const { set } = REQUESTS.offer(body, 'offer')
  const counts = set.map(({ directory, sizes }) => (directory ? 1 : 0) + sizes.length)
  if (counts.reduce((sum, count) => sum + count, 0) !== descriptors.length)
    throw new KeepError('offer: it names other descriptors than it carries', 'protocol')
  let next = 0
  const parts = set.map(({ device, directory, sizes, ...facts }): Offered => {
    const table = directory ? descriptors[next++] : null
    if (table !== null) checkDirectory(table)
    const pieces = sizes.map(bytes => ({ descriptor: descriptors[next++], bytes }))
    for (const { descriptor } of pieces) checkPiece(descriptor, device)
    return { ...facts, device, directory: table, pieces }
  })
  const adopted = adopt(regions, channel, parts)
  for (const { descriptors: taken } of adopted.generations)
    for (const each of taken) descriptors.splice(descriptors.indexOf(each), 1)
  return adopted
}

/** The answer to a `find`. */
export function found(outcome: Exclude<Outcome, { kind: 'refused' }>): Answer {
  const { kind, generation } = outcome
  const { number, version, contentBytes: bytes, labels, pieces, directory } = generation
  const first = pieces.slice(0, MOST_FIRST_PIECES) // a lease has none
  const sizes = first.map(piece => piece.bytes)
  const facts = { kind, generation: number, version, bytes, labels }
  return {
    body: { ...facts, pieces: pieces.length, directory: directory !== null, sizes },
    descriptors: [...(directory === null ? [] : [directory]), ...first.map(piece => piece.descriptor)],
  }
}

/** Facts of regions, until they fill a packet. */
export class Page {
  readonly regions: RegionInfo[] = []
  private bytes = 0

  /** Whether the region was added. */
  add(info: RegionInfo): boolean {
    this.bytes += Buffer.byteLength(JSON.stringify(info))
    if (this.bytes > MOST_PAGE_BYTES && this.regions.length > 0) return false
    this.regions.push(info)
    return true
  }
}
