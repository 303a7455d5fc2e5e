// The form of each request and answer. Both sides check what they read.

import { MOST_DESCRIPTORS } from '../libraries/unix-socket.js'
import { MOST_LABEL_BYTES, MOST_NAME_BYTES, MOST_UUID_BYTES } from './region.js'
import { fields, flag, listOf, maybe, oneOf, type Shaped, textOf, textsOf, wholeFrom } from './shape.js'

export const NAME = textOf(1, MOST_NAME_BYTES)
export const VERSION = textOf(0, MOST_NAME_BYTES)
export const COUNT = wholeFrom(0)
export const BYTES = wholeFrom(1)
const SENTENCE = textOf(0, 4096)
const UINT32 = 2 ** 32 - 1

/** The first packet of pieces to a reader also has the directory. */
export const MOST_FIRST_PIECES = MOST_DESCRIPTORS - 1
/** A directory has at most this many bytes. */
export const MOST_DIRECTORY_BYTES = 16 * 2 ** 20

export const LABELS = textsOf(MOST_LABEL_BYTES)
export const DEVICE = fields({ uuid: textOf(1, MOST_UUID_BYTES), totalBytes: BYTES, simulated: flag })
const GENERATION = fields({ generation: COUNT })
const SIZES = listOf(BYTES, MOST_DESCRIPTORS)
const STATES = oneOf('filling', 'committing', 'ready', 'retired', 'unfinished')
export const REGION = fields({
  name: NAME,
  version: VERSION,
  generation: COUNT,
  state: STATES,
  bytes: COUNT,
  device: textOf(1, MOST_UUID_BYTES),
  labels: LABELS,
  readers: listOf(COUNT, Infinity),
  writer: COUNT,
  lastUse: COUNT,
  created: COUNT,
})

/** A request to find or fill, as the keeper remembers it. */
export const WANTED = fields({
  name: NAME,
  version: maybe(VERSION),
  purpose: oneOf('read', 'fill'),
  bytes: COUNT,
  device: DEVICE,
  labels: LABELS,
  ifFull: oneOf('fail', 'evictUnused', 'replace'),
})

const OFFERED = fields({
  /** later numbers stay exact */
  generation: wholeFrom(0, Number.MAX_SAFE_INTEGER / 2),
  name: NAME,
  version: VERSION,
  device: DEVICE,
  labels: LABELS,
  bytes: BYTES,
  retired: flag,
  sizes: SIZES,
  directory: flag,
})

/** The requests of clients. */
export const REQUESTS = {
  /** carries one end of a stream socket, through which the keeper says that it has sent something */
  hello: fields({ versions: fields({ least: COUNT, most: COUNT }) }),
  find: fields({
    name: NAME,
    version: maybe(VERSION),
    purpose: oneOf('read', 'fill'),
    bytes: maybe(BYTES),
    device: DEVICE,
    labels: maybe(LABELS),
    ifFull: maybe(oneOf('fail', 'evictUnused', 'replace')),
  }),
  /** a `find` that waits */
  cancel: fields({ request: wholeFrom(1, UINT32) }),
  /** carries pieces of a leased generation, in their order */
  pieces: fields({ generation: COUNT, first: COUNT, sizes: SIZES }),
  /** asks for pieces from `first` on */
  more: fields({ generation: COUNT, first: COUNT }),
  /** carries the directories of those generations that have one, in their order */
  commit: fields({
    set: listOf(fields({ generation: COUNT, bytes: BYTES, pieces: BYTES, directory: flag }), MOST_DESCRIPTORS),
  }),
  abandon: GENERATION,
  release: GENERATION,
  lost: GENERATION,
  /** the generations after this one */
  list: fields({ after: COUNT }),
  drop: fields({ name: NAME, force: flag }),
  prune: fields({ unusedMs: maybe(COUNT), unfinished: maybe(flag), name: maybe(NAME), all: maybe(flag) }),
  watch: fields({ on: flag }),
  /**
   * of a client whose keeper went away: the generations that it has attached, or could not commit. It carries the
   * directory and the pieces of each, or no descriptors to ask which the keeper wants.
   */
  offer: fields({ set: listOf(OFFERED, MOST_DESCRIPTORS) }),
  /** of a successor: asks for the descriptors from `first` on; with 0 the keeper stops serving others */
  handover: fields({ first: COUNT }),
  /** of a successor: it has all, and the keeper ends */
  taken: fields({}),
} as const

export type Requests = { readonly [Type in keyof typeof REQUESTS]: Shaped<(typeof REQUESTS)[Type]> }

/** The keeper's answers. Other requests have an answer without fields. */
export const ANSWERS = {
  /** the keeper's number stays the same for all that take over from each other */
  hello: fields({ version: COUNT, keeper: COUNT }),
  /** a region that is ready carries its directory, if it has one, and the first pieces */
  find: fields({
    kind: oneOf('lease', 'ready'),
    generation: COUNT,
    version: VERSION,
    bytes: COUNT,
    labels: LABELS,
    pieces: COUNT,
    directory: flag,
    sizes: SIZES,
  }),
  /** the generations that the keeper does not have; those that it has, the client has attached */
  offer: fields({ wanted: listOf(COUNT, MOST_DESCRIPTORS) }),
  more: fields({ sizes: SIZES }),
  /** the first packet has the state as its first descriptor, a sealed file */
  handover: fields({ descriptors: COUNT }),
  list: fields({ regions: listOf(REGION, Infinity), more: flag }),
  prune: fields({ regions: listOf(REGION, Infinity), more: flag }),
  nothing: fields({}),
  error: fields({
    code: oneOf('absent', 'unfinished', 'quota', 'size', 'device', 'lost', 'user', 'protocol', 'gone', 'timeout'),
    message: SENTENCE,
  }),
  event: fields({
    kind: oneOf('leased', 'ready', 'retired', 'gone', 'unfinished', 'lost'),
    name: NAME,
    version: VERSION,
    generation: COUNT,
  }),
} as const

/** Facts of regions are added to an answer up to this length: those of a region have at most 20 KiB. */
export const MOST_PAGE_BYTES = 44 * 1024
