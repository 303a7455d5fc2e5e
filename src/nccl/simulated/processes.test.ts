// Ranks in several processes, and in several threads.

import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { afterEach, describe, it } from 'node:test'
import { NCCL_RESULT } from '../constants.js'
import { RankElsewhere } from './rank-process.fixture.js'
import { folderOf } from './unique-id.js'

const { ncclSuccess, ncclInProgress, ncclSystemError, ncclInvalidUsage, ncclRemoteError } = NCCL_RESULT
const opened: RankElsewhere[] = []
/** of the latest world that has joined */
let latestId: readonly number[]
afterEach(async () => {
  for (const rank of opened.splice(0)) await rank.kill()
})

/** Whether the folder of the latest world is there. */
function hasFolder(): boolean {
  return existsSync(folderOf(Uint8Array.from(latestId))!)
}

async function start(kind: 'inProcess' | 'inThread', count = 2): Promise<RankElsewhere[]> {
  const ranks = await Promise.all(Array.from({ length: count }, () => RankElsewhere[kind]()))
  opened.push(...ranks)
  return ranks
}

/** A world of ranks elsewhere, all joined. */
async function join(kind: 'inProcess' | 'inThread', count = 2): Promise<RankElsewhere[]> {
  const ranks = await start(kind, count)
  const id = await ranks[0].call('makeId')
  latestId = id
  const states = await Promise.all(ranks.map((rank, number) => rank.call('join', id, number, count)))
  assert.deepEqual(states, Array(count).fill(ncclSuccess))
  return ranks
}

for (const kind of ['inProcess', 'inThread'] as const) {
  describe(`ranks ${kind === 'inProcess' ? 'in processes' : 'in threads'} of their own`, () => {
    it('reduce together, and remove their folder', async () => {
      const ranks = await join(kind, 3)
      for (const [number, rank] of ranks.entries()) await rank.call('write', [number, 10 * number])
      await Promise.all(ranks.map(rank => rank.call('allReduce', 2)))
      const first = ranks.map(rank => rank.call('read', 2))
      assert.deepEqual(await Promise.all(first), Array(3).fill([3, 30]))
      assert.equal(hasFolder(), true)
      assert.deepEqual(await Promise.all(ranks.map(rank => rank.call('close'))), Array(3).fill(ncclSuccess))
      assert.equal(hasFolder(), false)
    })

    it('wait for a rank that calls later', async () => {
      const [first, second] = await join(kind)
      await first.call('write', [1])
      await second.call('write', [2])
      await first.call('allReduce', 1)
      assert.equal(await first.call('isIdle'), false)
      const read = first.call('read', 1) // blocks that thread
      await second.call('allReduce', 1)
      assert.deepEqual(await second.call('read', 1), [3])
      assert.deepEqual(await read, [3])
      await first.call('send', 1)
      await second.call('receive', 0)
      assert.deepEqual(await second.call('read', 1), [3])
      await Promise.all([first.call('close'), second.call('close')])
    })

    it('that make different calls get an error', async () => {
      const [first, second] = await join(kind)
      await first.call('allReduce', 1)
      await assert.rejects(second.call('allReduce', 2), {
        name: 'NcclMistake',
        message: /call 1 of rank 1 of 2 is ncclAllReduce of 2 float32 by sum, but of rank 0 ncclAllReduce of 1 float32/,
      })
    })
  })
}

describe('a rank', () => {
  it('that is killed is a remote error for the others, which can only abort, and the folder goes', async () => {
    const [first, second] = await join('inProcess')
    await first.call('write', [5])
    await first.call('allReduce', 1)
    await second.kill()
    assert.equal(await first.call('settle'), ncclRemoteError)
    assert.match(await first.call('lastError'), /the process of rank 1 has ended/)
    assert.equal(await first.call('isIdle'), false)
    assert.equal(await first.call('abort'), ncclSuccess)
    assert.deepEqual(await first.call('read', 1), [5], 'memory stays as it was')
    assert.equal(hasFolder(), false)
  })

  it('waits on the host for a rank that was killed: that is an error', async () => {
    const [first, second] = await join('inProcess')
    await first.call('allReduce', 1)
    await second.kill()
    await assert.rejects(first.call('read', 1), { name: 'EndlessWait', message: /for rank 1, whose process has ended/ })
  })

  it('is killed before the others have come', async () => {
    const [first, second] = await start('inProcess')
    const id = await first.call('makeId')
    assert.equal(await second.call('begin', id, 1, 2), ncclInProgress)
    assert.equal(await second.call('state'), ncclInProgress)
    await first.kill()
    assert.equal(await second.call('settle'), ncclRemoteError)
    assert.equal(await second.call('abort'), ncclSuccess)
  })

  it('comes with the number of another, or once all have left', async () => {
    const [first, second] = await join('inProcess')
    const [third] = await start('inProcess', 1)
    const id = await first.call('makeId')
    assert.equal(await first.call('begin', id, 0, 2), ncclInProgress)
    assert.equal(await third.call('join', id, 0, 2), ncclInvalidUsage)
    assert.match(await third.call('lastError'), /rank 0 of 2 has joined before/)
    assert.equal(await third.call('abort'), ncclSuccess)
    assert.equal(await first.call('abort'), ncclSuccess)
    assert.equal(await third.call('join', id, 1, 2), ncclSystemError)
    assert.equal(await second.call('abort'), ncclSuccess)
  })

  it('that disagrees about the number of ranks is refused', async () => {
    const [first, second] = await start('inProcess')
    const id = await first.call('makeId')
    assert.equal(await second.call('begin', id, 1, 3), ncclInProgress)
    assert.equal(await first.call('join', id, 0, 2), ncclInvalidUsage)
    assert.match(await first.call('lastError'), /rank 0 of 2, but rank 1 is one of 3/)
    assert.equal(await second.call('state'), ncclInProgress, 'it waits for rank 2')
  })

  it('leaves nothing behind when all are killed, once another world begins', async () => {
    const [first, second] = await join('inProcess')
    await first.kill()
    await second.kill()
    assert.equal(hasFolder(), true)
    const [third] = await start('inProcess', 1)
    await third.call('makeId')
    assert.equal(hasFolder(), false)
  })
})
