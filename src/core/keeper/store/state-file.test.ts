// The state's two halves, the variables of a service manager, and messages that the system refuses to send.

import assert from 'node:assert/strict'
import { ftruncateSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { DescriptorError } from '../../base/errors.js'
import { closeDescriptor } from '../../libraries/system-calls.js'
import { UnixSocket } from '../../libraries/unix-socket.js'
import { KeeperClient } from '../client.js'
import { commit, kept, LIMITS, leased, openFiles, refused, socketFolderOf } from '../keeper.fixture.js'
import { Keeper } from '../keeper.js'
import { DescriptorStore } from './descriptor-store.js'
import { Notifications } from './notifications.js'
import { TestManager } from './service-manager.fixture.js'
import { serviceManager } from './service-manager.js'
import { StateFile } from './state-file.js'

const isLinux = process.platform === 'linux'
const skip = !isLinux && `needs Linux, not ${process.platform}`
const SECOND_HALF = 2 ** 32

test('the state is the last that was written as a whole', { skip }, () => {
  const file = new StateFile()
  const { descriptor } = file
  const text = () => {
    const state = new StateFile(descriptor).read()
    return state === null ? null : Buffer.from(state).toString()
  }
  assert.equal(text(), null)
  for (const each of ['first', 'the second, which is longer', '3', '']) {
    file.write(Buffer.from(each))
    assert.equal(text(), each)
  }
  const next = new StateFile(descriptor)
  next.read()
  next.write(Buffer.from('fifth')) // in the second half
  assert.equal(text(), 'fifth')
  writeSync(descriptor, 'F', SECOND_HALF + 16)
  assert.equal(text(), '', 'a changed half does not count')
  ftruncateSync(descriptor, SECOND_HALF + 10)
  assert.equal(text(), '', 'nor does one that is cut')
  ftruncateSync(descriptor, 20)
  writeSync(descriptor, '9', 4)
  assert.equal(text(), null)
  closeDescriptor(descriptor)
})

test('a state of a later version is left alone', { skip }, async t => {
  const { folder, path, remove } = socketFolderOf()
  t.after(remove)
  const manager = new TestManager(join(folder, 'notify'), path)
  const file = new StateFile()
  file.write(Buffer.from(JSON.stringify({ format: 99 })))
  const notifications = Notifications.to(join(folder, 'notify'))!
  const open = () => DescriptorStore.open(notifications, new Map([['state', file.descriptor]]))
  assert.throws(open, refused('protocol', /^the stored state cannot be read; install the version that has written it/))
  notifications.close()
  closeDescriptor(file.descriptor)
  await manager.close()
  assert.deepEqual(manager.told, [])
})

test('without its variables there is no service manager, and they are for one process', { skip }, () => {
  const none = { notifications: null, listener: null, store: null, room: Number.POSITIVE_INFINITY }
  assert.deepEqual(serviceManager({}), none)
  const env = {
    NOTIFY_SOCKET: '/nowhere/notify',
    FDSTORE: '5',
    LISTEN_PID: String(process.pid + 1),
    LISTEN_FDS: '3',
    LISTEN_FDNAMES: 'a:b:c',
    OTHER: 'stays',
  }
  assert.deepEqual(serviceManager(env), none)
  assert.deepEqual(env, { OTHER: 'stays' })
})

test('a commit whose memory cannot be stored is refused, and can begin again', { skip }, async t => {
  const { folder, path, remove } = socketFolderOf()
  t.after(remove)
  const earlier = openFiles()
  const address = join(folder, 'notify')
  const manager = new TestManager(address, join(folder, 'unused'))
  const managed = serviceManager({ NOTIFY_SOCKET: address, FDSTORE: '9' })
  assert.equal(managed.room, 8)
  const keeper = new Keeper({ path, limits: LIMITS }, null, managed)
  const running = keeper.run()
  const client = await KeeperClient.open({ path })
  await kept(client, 'first', ['f'])
  const { sendPacket } = UnixSocket.prototype
  for (const refusedCall of ['FDSTORE=1', 'BARRIER=1', 'FDNAME=']) {
    for (const code of ['ENOBUFS', 'ETOOMANYREFS', 'ECONNREFUSED', 'gone'] as const) {
      const generation = await leased(client, 'weights')
      let isDue = true
      UnixSocket.prototype.sendPacket = function (bytes, descriptors) {
        if (!isDue || !Buffer.from(bytes).includes(refusedCall)) return sendPacket.call(this, bytes, descriptors)
        isDue = false
        if (code === 'gone') return code
        throw new DescriptorError('sendmsg', code, 'the descriptor')
      }
      try {
        await assert.rejects(commit(client, generation, ['x']), refused('quota', /^not stored, begin again: sendmsg/))
      } finally {
        UnixSocket.prototype.sendPacket = sendPacket
      }
      keeper.regions.check()
      assert.equal((await client.list()).find(({ name }) => name === 'weights')?.state, 'unfinished')
    }
  }
  await kept(client, 'weights', ['x'])
  assert.equal(manager.stored.length, 5, 'the state, and two of each region')
  client.close()
  keeper.end()
  await running
  await manager.close()
  assert.equal(openFiles(), earlier, 'every descriptor should be closed')
})

test('messages that the manager has no room for are sent later, in their order', { skip }, async t => {
  const { folder, path, remove } = socketFolderOf()
  t.after(remove)
  const earlier = openFiles()
  const address = join(folder, 'notify')
  const manager = new TestManager(address, join(folder, 'unused'), 3000)
  const keeper = new Keeper({ path, limits: LIMITS }, null, serviceManager({ NOTIFY_SOCKET: address, FDSTORE: '3000' }))
  const running = keeper.run()
  const client = await KeeperClient.open({ path })
  // Many more than the queue of a datagram socket holds.
  const texts = Array.from({ length: 1500 }, (_, index) => String(index))
  const generation = await kept(client, 'weights', texts)
  const names = texts.map((_, index) => `${generation.toString(36)}.${(index + 1).toString(36)}`)
  assert.deepEqual(
    manager.stored.map(({ name }) => name),
    ['state', `${generation.toString(36)}.0`, ...names],
  )
  client.close()
  keeper.end()
  await running
  await manager.close()
  assert.equal(openFiles(), earlier)
})
