import assert from 'node:assert/strict'
import { once } from 'node:events'
import {
  chmodSync,
  existsSync,
  linkSync,
  mkdirSync,
  renameSync,
  rmdirSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { afterEach, beforeEach, mock, test } from 'node:test'
import { ownRuntimeFolder } from './live.fixture.js'
import { clear, foreignSocket, freeSocketPath, prepareFolder, servedSockets, socketFolder } from './socket-path.js'

let runtime: ReturnType<typeof ownRuntimeFolder>
beforeEach(() => {
  runtime = ownRuntimeFolder()
})
afterEach(() => {
  mock.restoreAll()
  runtime.restore()
})

/** The same process, run by another user. */
function asAnotherUser(): void {
  const uid = process.getuid!()
  mock.method(process as { getuid(): number }, 'getuid', () => uid + 1)
}

async function listening(path: string) {
  const server = createServer().listen(path)
  await once(server, 'listening')
  return { end: () => new Promise(resolve => server.close(resolve)) }
}

/** A socket without a listener, as a killed process leaves it. */
async function deadSocket(path: string): Promise<void> {
  const { end } = await listening(`${path}.alive`)
  linkSync(`${path}.alive`, `${path}.kept`)
  await end()
  renameSync(`${path}.kept`, path)
}

test('sockets lie in the runtime folder, or in one of the user in the temporary folder', () => {
  assert.equal(socketFolder(), runtime.folder)
  assert.match(socketFolder({}), /\/cuda-mempool-\d+$/)
  assert.match(socketFolder({ XDG_RUNTIME_DIR: 'relative' }), /\/cuda-mempool-\d+$/)
})

test("the folder is this user's alone", () => {
  prepareFolder(runtime.folder)
  assert.equal(statSync(runtime.folder).mode & 0o777, 0o700)
  chmodSync(runtime.folder, 0o755)
  assert.throws(() => prepareFolder(runtime.folder), {
    name: 'PoolError',
    message: /is open to other users; use a folder that only you can open \(mkdir -m 700\), or give the option socket$/,
  })
  chmodSync(runtime.folder, 0o700)
  asAnotherUser()
  assert.throws(() => prepareFolder(runtime.folder), { message: /belongs to another user/ })
})

test('a folder that is a link or a file is refused', () => {
  const elsewhere = `${runtime.folder}-elsewhere`
  mkdirSync(elsewhere, { mode: 0o700 })
  symlinkSync(elsewhere, runtime.folder)
  assert.throws(() => prepareFolder(runtime.folder), { message: /is no folder/ })
  rmdirSync(elsewhere)
  assert.throws(() => prepareFolder(runtime.folder), { name: 'PoolError' })
})

test('a dead socket makes room, and one that is alive stays', async () => {
  prepareFolder(runtime.folder)
  const path = join(runtime.folder, '77.sock')
  await deadSocket(path)
  assert.ok(existsSync(path))
  assert.equal(await freeSocketPath(runtime.folder, 77), path)
  assert.ok(!existsSync(path), 'the dead one is gone')
  const { end } = await listening(path)
  assert.equal(await freeSocketPath(runtime.folder, 77), join(runtime.folder, '77-2.sock'))
  assert.equal(await clear(path), false)
  await end()
})

test('a file in place of a socket is never removed', async () => {
  prepareFolder(runtime.folder)
  const path = join(runtime.folder, '78.sock')
  writeFileSync(path, 'mine')
  assert.equal(await clear(path), false)
  assert.equal(await freeSocketPath(runtime.folder, 78), join(runtime.folder, '78-2.sock'))
  assert.ok(existsSync(path))
})

test("only living sockets of this user are listed, and the user's dead ones are removed", async () => {
  assert.deepEqual(await servedSockets(), [], 'no folder yet')
  prepareFolder(runtime.folder)
  const [dead, alive] = [join(runtime.folder, '1.sock'), join(runtime.folder, '22-2.sock')]
  await deadSocket(dead)
  const { end } = await listening(alive)
  assert.deepEqual(await servedSockets(), [{ path: alive, pid: 22 }])
  assert.ok(!existsSync(dead))
  asAnotherUser()
  assert.match(foreignSocket(alive)!, /belongs to another user/)
  assert.deepEqual(await servedSockets(), [])
  await end()
})
