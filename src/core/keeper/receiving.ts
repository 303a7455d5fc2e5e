// Takes a region that is ready from a keeper: its directory and its pieces, in as many packets as they need.

import { KeepError } from '../base/errors.js'
import { readSealed } from '../libraries/sealed-memory.js'
import { closeDescriptor } from '../libraries/system-calls.js'
import type { Answered, Connection, RequestOptions } from './connection.js'
import { ANSWERS, MOST_DIRECTORY_BYTES } from './messages.js'
import type { PieceOf } from './region.js'

/** The result of `find`. */
export type Found =
  | { readonly kind: 'lease'; readonly generation: number }
  | {
      readonly kind: 'ready'
      readonly generation: number
      readonly version: string
      readonly bytes: number
      readonly labels: Readonly<Record<string, string>>
      /** the caller closes their descriptors */
      readonly pieces: readonly PieceOf[]
      readonly directory: Uint8Array
    }

/** Reads the answer to a `find`. If it fails it leaves no descriptor open, and gives the region back. */
export async function received(connection: Connection, answer: Answered, options: RequestOptions): Promise<Found> {
  const open = new Set(answer.descriptors)
  let attached: number | null = null
  try {
    const facts = ANSWERS.find(answer.body, 'the answer to find')
    const { kind, generation, version, bytes, labels, sizes } = facts
    if (kind === 'lease') return { kind, generation }
    attached = generation
    const first = answer.descriptors.slice(facts.directory ? 1 : 0)
    if (answer.descriptors.length !== sizes.length + (facts.directory ? 1 : 0)) throw incomplete(generation)
    const pieces = first.map((descriptor, index) => ({ descriptor, bytes: sizes[index] }))
    while (pieces.length < facts.pieces) {
      const next = await connection.request('more', { generation, first: pieces.length }, options)
      for (const descriptor of next.descriptors) open.add(descriptor)
      const more = ANSWERS.more(next.body, 'the answer to more').sizes
      if (more.length === 0 || more.length !== next.descriptors.length) throw incomplete(generation)
      pieces.push(...next.descriptors.map((descriptor, index) => ({ descriptor, bytes: more[index] })))
    }
    const directory = facts.directory ? readSealed(answer.descriptors[0], MOST_DIRECTORY_BYTES) : new Uint8Array(0)
    for (const { descriptor } of pieces) open.delete(descriptor)
    attached = null
    return { kind, generation, version, bytes, labels, pieces, directory }
  } finally {
    open.forEach(closeDescriptor)
    if (attached !== null) connection.request('release', { generation: attached }, options).catch(() => {})
  }
}

function incomplete(generation: number): KeepError {
  return new KeepError(`the keeper sent too few pieces of generation ${generation}; ask again`, 'protocol')
}
