// Labels of buffers. They lie beside the pools, so that a buffer without one costs nothing. Those of a shared pool lie
// in memory that all of its threads see (shared/shared-labels.ts).

import { WrongTypeError } from '../base/argument-errors.js'
import { describe } from '../base/bytes.js'

/** The label of one use of a record. */
interface Label {
  readonly tag: number
  readonly text: string
}

/** A labelled buffer, as its pool knows it. */
interface Labelled {
  readonly record: number
  readonly tag: number
  readonly allocation: { readonly pool: LabelledPool; readonly span?: object }
}

interface LabelledPool {
  readonly context: object
  readonly labels?: LabelStore
}

/** The labels of a pool that keeps them itself. */
export interface LabelStore {
  /** whether a buffer was ever given a label */
  readonly any: boolean
  /** Throws RangeError, in the name of `argument`, for a text that is too long for a label. */
  check(argument: string, text: string): void
  set(record: number, tag: number, text: string): void
  get(record: number, tag: number): string
}

/**
 * By pool and record; a later buffer of the record has another tag. An arena has no records: its labels are by span and
 * tag, because the spans of dropped buffers end with the drop, and wrappers keep the span.
 */
const labels = new WeakMap<object, Map<number, Label>>()

/** Throws TypeError for no text, and RangeError for one that is too long for the `store` of a shared pool. */
export function checkLabel(text: unknown, store?: Pick<LabelStore, 'check'>): void {
  if (typeof text !== 'string')
    throw new WrongTypeError(`label must be a text such as 'weights', not ${describe(text)}`)
  store?.check('label', text)
}

/** Sets the label of a live buffer; '' takes it away. Throws TypeError for no text, RangeError for too long text. */
export function setLabel({ record, tag, allocation }: Labelled, text: string): void {
  checkLabel(text)
  if (allocation.pool.labels !== undefined) {
    allocation.pool.labels.set(record, tag, text)
    return
  }
  const owner = allocation.span ?? allocation.pool
  const ofOwner = labels.get(owner) ?? new Map<number, Label>()
  if (text === '') ofOwner.delete(keyOf(record, tag))
  else ofOwner.set(keyOf(record, tag), { tag, text })
  labels.set(owner, ofOwner)
}

/** The label of a buffer; '' for none. */
export function labelOfBuffer({ record, tag, allocation }: Labelled): string {
  if (allocation.span !== undefined) return textIn(allocation.span, record, tag)
  return labelOf(allocation.pool, record, tag)
}

/** The label of the buffer with a record of the pool; '' for none. */
export function labelOf(pool: LabelledPool, record: number, tag: number): string {
  if (pool.labels !== undefined) return pool.labels.get(record, tag)
  return textIn(pool, record, tag)
}

function textIn(owner: object, record: number, tag: number): string {
  const label = labels.get(owner)?.get(keyOf(record, tag))
  return label?.tag === tag ? label.text : ''
}

/** Whether a buffer of the pool was ever given a label. */
export function hasLabels(pool: LabelledPool): boolean {
  return pool.labels?.any ?? labels.has(pool)
}

/** A part of a list of live buffers: those with one label, or from one place in the program. */
export interface LiveGroup {
  /** the label or the place; '' for buffers without a label */
  readonly name: string
  /** how many buffers */
  readonly buffers: number
  /** their requested bytes */
  readonly bytes: number
}

/** Live buffers by a name, most bytes first. */
export function groupLive<B extends { readonly byteLength: number }>(
  live: readonly B[],
  nameOf: (buffer: B) => string,
): LiveGroup[] {
  const groups = new Map<string, { name: string; buffers: number; bytes: number }>()
  for (const buffer of live) {
    const name = nameOf(buffer)
    const group = groups.get(name) ?? { name, buffers: 0, bytes: 0 }
    group.buffers++
    group.bytes += buffer.byteLength
    groups.set(name, group)
  }
  return [...groups.values()].sort((a, b) => b.bytes - a.bytes)
}

/** A record has one live buffer at a time; arenas number the buffers themselves. */
function keyOf(record: number, tag: number): number {
  return record < 0 ? tag : record
}
