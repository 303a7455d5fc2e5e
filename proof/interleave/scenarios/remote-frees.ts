import { assert } from '../../../src/core/base/assert.js'
import { ownerWordOf, Phase, phaseOf, workerOf } from '../../../src/core/heap/owner-word.js'
import { RecordTable, Word } from '../../../src/core/heap/records.js'
import { BATCH_WORDS, RemoteFrees } from '../../../src/core/pool/shared/remote-frees.js'
import { storeRelease } from '../../../src/core/threads/memory-order.js'
import { Region } from '../../../src/core/threads/region.js'
import { MOST_WORKERS } from '../../../src/core/threads/thread-registry.js'
import type { Cast, Scenario } from '../stage.js'

const RECEIVER = 1
const MOST_RECORDS = 63

function layOut(buffer: SharedArrayBuffer | null) {
  const region = new Region(buffer)
  const records = new RecordTable(region, MOST_RECORDS, MOST_WORKERS)
  return { records, remoteFrees: new RemoteFrees(records, region), bytes: region.bytes }
}

/** Threads send a number of blocks each to one receiver, which takes them out meanwhile. */
function senders(count: number, each: number): Cast {
  const buffer = new SharedArrayBuffer(layOut(null).bytes)
  const { records } = layOut(buffer)
  const { words } = records
  const arrived = new Set<number>()
  let kept = 0
  const own = layOut(buffer).remoteFrees
  const arrive = (record: number) => {
    assert(!arrived.has(record), 'a block arrives once')
    arrived.add(record)
  }
  const send = (thread: number) => {
    const { remoteFrees } = layOut(buffer)
    remoteFrees.enter(thread)
    for (let index = 0; index < each; index++) {
      const record = (thread - RECEIVER) * each - index
      if (!remoteFrees.send(record, ownerWordOf(0, thread, Phase.sent), RECEIVER)) kept++
    }
  }
  const look = () => {
    own.noteArrivals()
    for (let position = own.oldest; position !== own.seen; position = (position + 1) | 0) {
      const batch = own.batchAt(position)
      const isComplete = own.isComplete(batch)
      for (let entry = batch + 1; entry < batch + BATCH_WORDS; entry++) {
        const record = own.words[entry]
        if (record === 0) continue
        assert(own.isSent(record), 'a block that is there was sent')
        arrive(record)
        storeRelease(words, (record << 4) | Word.owner, ownerWordOf(0, RECEIVER, Phase.cached))
        storeRelease(own.words, entry, 0)
      }
      if (isComplete) own.finish(position)
    }
  }
  const receive = () => {
    own.enter(RECEIVER) // in the place of a thread to which something may have been sent
    for (let turn = 0; turn < 3; turn++) look()
  }
  const threads = Array.from({ length: count }, (_, index) => () => send(RECEIVER + 1 + index))
  const end = () => {
    look()
    assert(arrived.size + kept === count * each, 'who looks finds every block that was sent')
    for (let index = 0; index < count; index++) own.completeOf(RECEIVER + 1 + index)
    look()
    assert(own.oldest === own.seen, 'batches of threads that have ended can be filled again')
  }
  return { threads: [...threads, receive], end }
}

/**
 * A thread has died that sent one block, and was about to send another; a thread takes out what has arrived, and the
 * pool server claims the rest.
 */
function claiming(): Cast {
  const buffer = new SharedArrayBuffer(layOut(null).bytes)
  const { records, remoteFrees: sender } = layOut(buffer)
  const { words } = records
  const [SENDER, ARRIVED, LOST] = [2, 1, 2]
  sender.enter(SENDER)
  sender.send(ARRIVED, ownerWordOf(0, SENDER, Phase.sent), RECEIVER)
  storeRelease(words, (LOST << 4) | Word.owner, ownerWordOf(0, SENDER, Phase.sent))
  const owners: string[] = []
  const own = (record: number, who: string) => {
    assert(owners[record] === undefined, 'a block is one thread’s')
    owners[record] = who
  }
  const receive = () => {
    const { remoteFrees } = layOut(buffer)
    remoteFrees.enter(RECEIVER)
    remoteFrees.noteArrivals()
    const entry = remoteFrees.batchAt(remoteFrees.oldest) + 1
    storeRelease(words, (remoteFrees.words[entry] << 4) | Word.owner, ownerWordOf(0, RECEIVER, Phase.cached))
    own(remoteFrees.words[entry], 'receiver')
    storeRelease(remoteFrees.words, entry, 0)
  }
  const claim = () => {
    const { remoteFrees } = layOut(buffer)
    const isIts = (ownerWord: number) => phaseOf(ownerWord) === Phase.sent && workerOf(ownerWord) === SENDER
    const sent = [ARRIVED, LOST].filter(record => isIts(words[(record << 4) | Word.owner]))
    const arrived = remoteFrees.all()
    for (const record of sent) if (!arrived.has(record) && remoteFrees.claim(record, SENDER)) own(record, 'server')
  }
  const end = () => {
    assert(owners[ARRIVED] === 'receiver' && owners[LOST] === 'server', 'each block is somebody’s')
  }
  return { threads: [receive, claim], end }
}

export const scenarios: Record<string, Scenario> = {
  'every block that is sent arrives once': { begin: () => senders(2, 4) },
  'a block of a dead thread is taken out or claimed': { begin: claiming },
}
