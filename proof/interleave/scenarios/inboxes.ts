import { assert } from '../../../src/base/assert.js'
import { publish } from '../../../src/base/publish.js'
import { MOST_WORKERS } from '../../../src/base/roster.js'
import { holderOf, Phase } from '../../../src/heap/holder.js'
import { RecordTable, Word } from '../../../src/heap/records.js'
import { Region } from '../../../src/heap/region.js'
import { Inboxes, PARCEL_WORDS } from '../../../src/pool/inboxes.js'
import type { Cast, Scenario } from '../stage.js'

const RECEIVER = 1
const MOST_RECORDS = 63

function layOut(buffer: SharedArrayBuffer | null) {
  const region = new Region(buffer)
  const records = new RecordTable(region, MOST_RECORDS, MOST_WORKERS)
  return { records, inboxes: new Inboxes(records, region), bytes: region.bytes }
}

/** Threads that send so many blocks each to another one, which takes them out meanwhile. */
function senders(count: number, each: number): Cast {
  const buffer = new SharedArrayBuffer(layOut(null).bytes)
  const { records } = layOut(buffer)
  const { words } = records
  const arrived = new Set<number>()
  let kept = 0
  const own = layOut(buffer).inboxes
  const arrive = (record: number) => {
    assert(!arrived.has(record), 'a block arrives once')
    arrived.add(record)
  }
  const send = (thread: number) => {
    const { inboxes } = layOut(buffer)
    inboxes.enter(thread)
    for (let index = 0; index < each; index++) {
      const record = (thread - RECEIVER) * each - index
      if (!inboxes.send(record, holderOf(0, thread, Phase.sent), RECEIVER)) kept++
    }
  }
  const look = () => {
    own.look()
    for (let position = own.oldest; position !== own.seen; position = (position + 1) | 0) {
      const parcel = own.parcelAt(position)
      const isComplete = own.isComplete(parcel)
      for (let entry = parcel + 1; entry < parcel + PARCEL_WORDS; entry++) {
        const record = own.words[entry]
        if (record === 0) continue
        assert(own.isSent(record), 'a block that is there was sent')
        arrive(record)
        publish(words, (record << 4) | Word.holder, holderOf(0, RECEIVER, Phase.cached))
        publish(own.words, entry, 0)
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
    assert(own.oldest === own.seen, 'parcels of threads that have ended can be filled again')
  }
  return { threads: [...threads, receive], end }
}

export const scenarios: Record<string, Scenario> = {
  'every block that is sent arrives once': { begin: () => senders(2, 4), bound: 1 },
}
