// The other processes on a device: which are named, and how.

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { describe, it } from 'node:test'
import { GiB } from '../base/bytes.js'
import type { NvmlAnswer } from '../libraries/nvml.js'
import type { Context } from './context.js'
import { usersOf, usersText } from './device-users.js'
import type { Driver } from './driver.js'

const skip = process.platform !== 'linux' && 'only Linux has /proc'
/** Above the most that a process id can be. */
const UNUSED_ID = 2 ** 22 + 1
const OWN = { pid: process.pid, bytes: GiB }

const on = (usersOf?: Driver['usersOf']) => ({ driver: { usersOf }, device: 3 }) as unknown as Context
const telling = (processes: NvmlAnswer['processes'], persistenceMode: boolean | null = null) =>
  usersOf(on(() => ({ processes, persistenceMode })))

describe('the users of a device', () => {
  it('are the other processes, most bytes first, with the names that can be read', { skip }, () => {
    const parent = { pid: process.ppid, bytes: 2 * GiB }
    const name = readFileSync(`/proc/${process.ppid}/comm`, 'utf8').trim()
    assert.deepEqual(telling([{ pid: UNUSED_ID, bytes: null }, OWN, { pid: UNUSED_ID + 1, bytes: 0 }, parent], true), {
      processes: [
        { ...parent, name },
        { pid: UNUSED_ID, name: null, bytes: null },
      ],
      persistenceMode: true,
    })
  })

  it('are not named by ids of another namespace, where this process is not found', () => {
    assert.deepEqual(telling([{ pid: 1, bytes: GiB }], false), { processes: [], persistenceMode: false })
  })

  it('are null for a driver that does not know them, and for one that fails', () => {
    assert.equal(usersOf(on()), null)
    assert.equal(usersOf(on(() => null)), null)
    const failing = on(device => {
      throw new Error(`device ${device}`)
    })
    assert.equal(usersOf(failing), null)
  })
})

describe('the text of the users', () => {
  const python = { pid: 4711, name: 'python', bytes: 40 * GiB }
  const node = { pid: 4712, name: 'no\u001b[31mde', bytes: 21 * GiB }
  const hidden = { pid: 4713, name: null, bytes: null }

  it('has the sum, and names the first', () => {
    assert.equal(usersText([]), null)
    assert.equal(
      usersText([python, node, hidden]),
      'other processes hold 61 GiB: 4711 python 40 GiB, 4712 no?[31mde 21 GiB, 4713',
    )
    assert.equal(usersText([python, node], 1), 'other processes hold 61 GiB: 4711 python 40 GiB, 1 more 21 GiB')
    assert.equal(usersText([python, hidden, hidden], 1), 'other processes hold 40 GiB: 4711 python 40 GiB, 2 more')
  })

  it('has no amounts that are not known', () => {
    assert.equal(usersText([{ ...python, bytes: null }, hidden]), 'other processes use it: 4711 python, 4713')
  })
})
