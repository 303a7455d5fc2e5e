// The packets between a keeper and its clients: a head of 8 bytes, then JSON. A packet may carry descriptors. Requests
// have a number that their answers repeat; events have the number 0.

import { KeepError } from '../base/errors.js'

/** First byte of each packet: packets of other programs are recognised. */
const MARK = 0xfd
const HEAD_BYTES = 8
export const MOST_JSON_BYTES = 65536
export const MOST_PACKET_BYTES = HEAD_BYTES + MOST_JSON_BYTES

/** The versions that this program speaks: its own and the version before. So keepers are updated before clients. */
export const VERSIONS: Versions = { least: 1, most: 1 }

export interface Versions {
  readonly least: number
  readonly most: number
}

/** By number. A new type is added at the end. */
const TYPES = [
  'hello',
  'find',
  'cancel',
  'pieces',
  'more',
  'commit',
  'abandon',
  'release',
  'lost',
  'list',
  'drop',
  'prune',
  'watch',
  'offer',
  'handover',
  'taken',
  'ok',
  'queued',
  'error',
  'event',
] as const

export type PacketType = (typeof TYPES)[number]

export interface Message {
  readonly type: PacketType
  readonly request: number
  readonly version: number
  /** JSON of any form */
  readonly body: unknown
}

/** The bytes of a packet. Throws KeepError 'protocol' if the body is longer than a packet can be. */
export function encoded(type: PacketType, request: number, body: unknown, version = VERSIONS.most): Uint8Array {
  const json = Buffer.from(JSON.stringify(body))
  if (json.length > MOST_JSON_BYTES)
    throw new KeepError(
      `${type}: the request has ${json.length} bytes; names and labels may have ${MOST_JSON_BYTES}`,
      'protocol',
    )
  const bytes = Buffer.alloc(HEAD_BYTES + json.length)
  bytes[0] = MARK
  bytes[1] = version
  bytes.writeUInt16LE(TYPES.indexOf(type), 2)
  bytes.writeUInt32LE(request, 4)
  json.copy(bytes, HEAD_BYTES)
  return bytes
}

/** Reads a packet. Throws KeepError 'protocol' for anything else; `from` names the sender. */
export function decoded(bytes: Uint8Array, from: string): Message {
  const packet = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length)
  const type = packet.length < HEAD_BYTES ? undefined : TYPES[packet.readUInt16LE(2)]
  if (packet[0] !== MARK || type === undefined) throw foreign(from)
  try {
    const body: unknown = JSON.parse(packet.toString('utf8', HEAD_BYTES))
    return { type, request: packet.readUInt32LE(4), version: packet[1], body }
  } catch {
    throw foreign(from)
  }
}

function foreign(from: string): KeepError {
  return new KeepError(`${from} sent a packet that cannot be read; use the same cuda-mempool on both sides`, 'protocol')
}

/** The highest version that both sides speak; null without one. */
export function commonVersion(theirs: Versions, own: Versions = VERSIONS): number | null {
  const version = Math.min(theirs.most, own.most)
  return version >= Math.max(theirs.least, own.least) ? version : null
}
