// Generations that clients of a keeper before bring to this keeper: they have them attached, or could not commit them.
// The keeper before had no store, or ended before it had stored them.

import { KeepError } from '../../base/errors.js'
import { shownName } from '../../base/shown-text.js'
import type { Facts, PieceOf } from '../region.js'
import { type Client, Generation } from './generation.js'
import type { KeptRegions } from './kept-regions.js'

/** A generation that a client has. */
export interface Offered extends Facts {
  /** whether a keeper before had dropped it */
  readonly retired: boolean
  /** empty if the client only asks whether the keeper wants it */
  readonly pieces: readonly PieceOf[]
  /** descriptor */
  readonly directory: number | null
}

export interface Adopted {
  /** sealed; they have the descriptors, and `publish` follows */
  readonly generations: readonly Generation[]
  /** the numbers of those that the keeper wants, and that came without pieces */
  readonly wanted: readonly number[]
}

/** Adds those that the keeper does not have; of the others the client is a reader. Throws KeepError, or does all. */
export function adopt(regions: KeptRegions, client: Client, set: readonly Offered[]): Adopted {
  if (new Set(set.map(each => each.generation)).size < set.length)
    throw new KeepError('offer: a generation is named twice', 'protocol')
  const known = set.flatMap(each => knownAs(regions, each) ?? [])
  const missing = set.filter(each => knownAs(regions, each) === null)
  const generations: Generation[] = []
  try {
    for (const each of missing) if (each.pieces.length > 0) generations.push(added(regions, client, each))
  } catch (error) {
    for (const each of generations) regions.withdraw(each)
    throw error
  }
  for (const each of known) regions.attach(each, client)
  const wanted = missing.filter(each => each.pieces.length === 0).map(each => each.generation)
  return { generations, wanted }
}

/** The keeper's own; null if it has none. Throws KeepError if it has something else with that number. */
function knownAs({ generations }: KeptRegions, { generation, name, version, device }: Offered): Generation | null {
  const own = generations.get(generation)
  if (own === undefined) return null
  if (own.isSealed && own.name === name && own.version === version && own.device.uuid === device.uuid) return own
  throw new KeepError(`generation ${generation} of ${shownName(name)} is another region now; attach it anew`, 'gone')
}

function added(regions: KeptRegions, client: Client, offered: Offered): Generation {
  const { generation: number, name, version, device, labels, bytes, pieces, directory } = offered
  const writer = { pid: client.pid, isOpen: false, waiting: 0 } // it has no lease
  const generation = new Generation(number, name, version, device, labels, bytes, writer, regions.now())
  generation.state = 'committing'
  generation.isSealed = true
  generation.isRetired = offered.retired
  generation.contentBytes = bytes
  generation.pieces = [...pieces]
  generation.directory = directory
  if (bytes > generation.bytes)
    throw new KeepError(`offer: ${shownName(name)} is not whole; send all its pieces`, 'protocol')
  regions.checkOffer(generation)
  regions.restore(generation)
  regions.attach(generation, client)
  regions.next = Math.max(regions.next, number + 1)
  return generation
}
