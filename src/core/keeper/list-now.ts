// The regions of a keeper for callers that cannot wait for a promise, such as the error of a full device. A connection
// of its own asks, and this thread waits for the answer, though not for long.

import { existsSync } from 'node:fs'
import { KeepError } from '../base/errors.js'
import { waitForReading } from '../libraries/poller.js'
import { closeDescriptor, passesDescriptors } from '../libraries/system-calls.js'
import { streamPair, UnixSocket } from '../libraries/unix-socket.js'
import { ANSWERS, type Requests } from './messages.js'
import { decoded, encoded, MOST_PACKET_BYTES, VERSIONS } from './protocol.js'
import type { RegionInfo } from './region.js'
import { untrusted } from './socket-path.js'

/** What has to be sent so that a keeper lists its regions. */
type Asked = Pick<Requests, 'hello' | 'list'>

/**
 * All generations of the keeper at `path`, and the names whose writers ended early. Null without a keeper of this user
 * that answers in time. Never throws.
 */
export function listNow(path: string, timeoutMs: number): RegionInfo[] | null {
  if (!passesDescriptors() || !existsSync(path) || untrusted(path) !== null) return null
  let socket: UnixSocket | null = null
  try {
    socket = UnixSocket.connectTo(path)
    if (socket === null || socket.peer().user !== process.geteuid!()) return null
    return listed(socket, performance.now() + timeoutMs)
  } catch {
    return null // the list is a help only: an error here would hide the caller's own
  } finally {
    socket?.close()
  }
}

function listed(socket: UnixSocket, deadline: number): RegionInfo[] {
  const bell = streamPair() // the keeper writes to it with each answer; it is not read here
  try {
    const regions: RegionInfo[] = []
    answerTo(socket, 'hello', { versions: VERSIONS }, deadline, [bell[1]])
    for (let more = true; more; ) {
      const body = answerTo(socket, 'list', { after: regions.at(-1)?.generation ?? 0 }, deadline)
      const page = ANSWERS.list(body, 'the list')
      regions.push(...page.regions)
      more = page.more
    }
    return regions
  } finally {
    bell.forEach(closeDescriptor)
  }
}

/** The body of the keeper's answer. Throws KeepError if the keeper refuses, has ended, or takes too long. */
function answerTo<Type extends keyof Asked>(
  socket: UnixSocket,
  type: Type,
  body: Asked[Type],
  deadline: number,
  descriptors: readonly number[] = [],
): unknown {
  if (socket.sendPacket(encoded(type, 1, body), descriptors) !== 'sent') throw new KeepError('no keeper reads', 'gone')
  for (;;) {
    const packet = socket.receivePacket(MOST_PACKET_BYTES, 0)
    if (packet === 'gone') throw new KeepError('the keeper has ended', 'gone')
    if (packet !== null) {
      const answer = decoded(packet.bytes, 'the keeper')
      if (answer.type !== 'ok') throw new KeepError('the keeper refuses', 'protocol')
      return answer.body
    }
    const leftMs = deadline - performance.now()
    if (leftMs <= 0) throw new KeepError('the keeper does not answer', 'timeout')
    waitForReading(socket.descriptor, leftMs)
  }
}
