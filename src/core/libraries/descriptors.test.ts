// File descriptors passed to other processes and within this process: the data that arrives, the errors of both ends,
// and no descriptor or socket file left behind.

import assert from 'node:assert/strict'
import { type ChildProcess, fork, spawn } from 'node:child_process'
import { once } from 'node:events'
import * as fs from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, afterEach, before, beforeEach, describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { DescriptorError } from '../base/errors.js'
import { receiveDescriptor, sendDescriptor } from './descriptors.fixture.js'
import { acceptDescriptor, closeDescriptor, MOST_MESSAGE_BYTES, offerDescriptor } from './descriptors.js'
import { openSystem } from './system-calls.js'
import { UnixSocket } from './unix-socket.js'

const SCRIPT = fileURLToPath(import.meta.url)
const SHORT = { timeoutMs: 30 }
const NO_THREAD = 65534

/** The other process: takes a descriptor, reads and writes through it, and reports the text that it read. */
async function take(path: string): Promise<void> {
  const receiving = receiveDescriptor(path, { timeoutMs: 60_000 })
  process.send!('waiting')
  const { descriptor, message } = await receiving
  const content = readAll(descriptor)
  fs.writeSync(descriptor, ' and read', content.length)
  closeDescriptor(descriptor)
  process.send!({ content, message: Buffer.from(message).toString() })
}

/** Another process, which keeps its descriptor until it is ended. */
async function hold(path: string): Promise<void> {
  const { descriptor } = await acceptDescriptor(path, { timeoutMs: 60_000 })
  process.send!(readAll(descriptor))
  setInterval(() => {}, 1000)
}

/** A process with too many open files: refused first, and served after it has closed some. */
async function takeWhenFull(path: string): Promise<void> {
  openSystem()
  const open: number[] = []
  try {
    for (;;) open.push(fs.openSync('/dev/null', 'r'))
  } catch {
    fs.closeSync(open.pop()!) // for the socket
  }
  const refusal = await receiveDescriptor(path, { timeoutMs: 60_000 }).catch((error: DescriptorError) => error.message)
  for (const descriptor of open) fs.closeSync(descriptor)
  const { descriptor } = await receiveDescriptor(path, { timeoutMs: 60_000 })
  console.log(JSON.stringify([refusal, readAll(descriptor)]))
}

function readAll(descriptor: number): string {
  const bytes = Buffer.alloc(1000)
  return bytes.toString('utf8', 0, fs.readSync(descriptor, bytes, 0, bytes.length, 0))
}

if (process.argv[2] === 'take') await take(process.argv[3])
else if (process.argv[2] === 'hold') await hold(process.argv[3])
else if (process.argv[2] === 'take-when-full') await takeWhenFull(process.argv[3])
else if (process.platform !== 'linux') {
  test('passing descriptors', { skip: `works on Linux, not on ${process.platform}` }, () => {})
} else {
  const folder = fs.mkdtempSync(join(tmpdir(), 'descriptors-'))
  const path = join(folder, 'socket')
  after(() => fs.rmSync(folder, { recursive: true }))

  /** A deleted file, which is open by its descriptor only. */
  const fileOf = (content: string) => {
    const name = join(folder, 'file')
    const descriptor = fs.openSync(name, 'w+')
    fs.rmSync(name)
    fs.writeSync(descriptor, content)
    return descriptor
  }

  const openFiles = () => fs.readdirSync('/proc/self/fd').length

  const refused = (call: string, resultName: string, text: RegExp) => (error: Error) =>
    error instanceof DescriptorError &&
    error.call === call &&
    error.resultName === resultName &&
    text.test(error.message)

  const user = process.geteuid!()

  /** Runs `work` as another user. The socket reports that user. */
  const asNobody = <T>(work: () => T): T => {
    process.seteuid!(NO_THREAD)
    try {
      return work()
    } finally {
      process.seteuid!(user)
    }
  }

  describe('passing descriptors', () => {
    let earlier = 0
    // The first stream of a process opens a descriptor for good (libuv's spare one, for when all are taken). A process
    // whose output goes to a file has had no stream yet.
    before(() => once(spawn('true'), 'close'))
    beforeEach(() => {
      earlier = openFiles()
    })
    afterEach(() => {
      assert.equal(openFiles(), earlier, 'every descriptor should be closed')
      assert.deepEqual(fs.readdirSync(folder), [], 'the socket file should be removed')
    })

    for (const first of ['sender', 'receiver']) {
      test(`a descriptor goes to another process, the ${first} first`, async () => {
        const descriptor = fileOf('only passed')
        const childOf = () => fork(SCRIPT, ['take', path])
        const received = async (child: ChildProcess) => {
          let told: unknown
          child.on('message', message => {
            told = message
          })
          const [[code]] = await Promise.all([once(child, 'exit'), once(child, 'disconnect')])
          assert.equal(code, 0)
          return told
        }
        let child: ChildProcess
        if (first === 'receiver') {
          child = childOf()
          assert.deepEqual((await once(child, 'message'))[0], 'waiting')
        }
        const sending = sendDescriptor(path, descriptor, Buffer.from('a message'), { timeoutMs: 60_000 })
        assert.equal(fs.statSync(path).mode & 0o777, 0o600, 'others should be kept out')
        child ??= childOf()
        assert.deepEqual(await received(child), { content: 'only passed', message: 'a message' })
        await sending
        assert.equal(readAll(descriptor), 'only passed and read')
        fs.closeSync(descriptor)
      })
    }

    test('a message of any length arrives', async () => {
      const descriptor = fileOf('')
      for (const message of [undefined, new Uint8Array(0), new Uint8Array(MOST_MESSAGE_BYTES).map((_, i) => i)]) {
        const [received] = await Promise.all([receiveDescriptor(path), sendDescriptor(path, descriptor, message)])
        assert.deepEqual(received.message, message ?? new Uint8Array(0))
        closeDescriptor(received.descriptor)
      }
      fs.closeSync(descriptor)
    })

    test('the descriptor may be closed right after the call', async () => {
      const descriptor = fileOf('the one that was meant')
      const sending = sendDescriptor(path, descriptor)
      fs.closeSync(descriptor)
      const other = fileOf('another one')
      assert.equal(other, descriptor, 'the number should be used again')
      const received = await receiveDescriptor(path)
      await sending
      assert.equal(readAll(received.descriptor), 'the one that was meant')
      closeDescriptor(received.descriptor)
      fs.closeSync(other)
    })

    test('each sender serves one receiver', async () => {
      const descriptor = fileOf('')
      const receiving = [receiveDescriptor(path), receiveDescriptor(path)]
      await sendDescriptor(path, descriptor, Buffer.from('first'))
      await sendDescriptor(path, descriptor, Buffer.from('second'))
      const received = await Promise.all(receiving)
      assert.deepEqual(received.map(({ message }) => Buffer.from(message).toString()).sort(), ['first', 'second'])
      for (const each of received) closeDescriptor(each.descriptor)
      fs.closeSync(descriptor)
    })

    test('a connection shows if the other end is open', async () => {
      const descriptor = fileOf('')
      const connect = async () => {
        const message = new Uint8Array(0)
        const [received, sender] = await Promise.all([
          acceptDescriptor(path, {}),
          offerDescriptor(path, descriptor, message, {}),
        ])
        closeDescriptor(received.descriptor)
        return [sender, received.connection]
      }
      for (const first of [0, 1]) {
        const ends = await connect()
        assert.deepEqual(
          ends.map(end => end.open),
          [true, true],
        )
        ends[first].close()
        ends[first].close()
        assert.deepEqual(
          ends.map(end => end.open),
          [false, false],
        )
        ends[1 - first].close()
      }
      fs.closeSync(descriptor)
    })

    test('a connection shows that the other process has ended', async () => {
      const descriptor = fileOf('kept')
      const child = fork(SCRIPT, ['hold', path])
      const held = await offerDescriptor(path, descriptor, new Uint8Array(0), { timeoutMs: 60_000 })
      assert.deepEqual((await once(child, 'message'))[0], 'kept')
      assert.equal(held.open, true)
      child.kill('SIGKILL')
      await once(child, 'exit')
      assert.equal(held.open, false)
      fs.closeSync(descriptor)
    })

    test('a timeout ends the wait for the other process', async () => {
      const descriptor = fileOf('')
      await assert.rejects(
        sendDescriptor(path, descriptor, undefined, SHORT),
        refused('accept', 'ETIMEDOUT', /no process/),
      )
      await assert.rejects(receiveDescriptor(path, SHORT), refused('connect', 'ETIMEDOUT', /no process/))
      await assert.rejects(receiveDescriptor(path, { timeoutMs: 0 }), refused('connect', 'ETIMEDOUT', /no process/))
      fs.closeSync(descriptor)
    })

    test('a socket file without a sender counts as no sender', async () => {
      const listener = UnixSocket.listenAt(path)
      fs.renameSync(path, `${path}-left`)
      listener.close()
      fs.renameSync(`${path}-left`, path)
      await assert.rejects(receiveDescriptor(path, SHORT), refused('connect', 'ETIMEDOUT', /no process/))
      fs.rmSync(path)
    })

    test('receivers at a busy sender try again', () => {
      const listener = UnixSocket.listenAt(path)
      const come = Array.from({ length: 20 }, () => UnixSocket.connectTo(path))
      assert.ok(come[0] !== null && come[19] === null, 'more than may wait at a time')
      for (const socket of come) socket?.close()
      listener.close()
    })

    test('a timeout ends the wait for a process that connects and does nothing', async () => {
      const descriptor = fileOf('')
      const sending = sendDescriptor(path, descriptor, undefined, SHORT)
      const receiver = UnixSocket.connectTo(path)!
      await assert.rejects(sending, refused('recv', 'ETIMEDOUT', /did not take/))
      receiver.close()
      const listener = UnixSocket.listenAt(path)
      await assert.rejects(receiveDescriptor(path, SHORT), refused('recvmsg', 'ETIMEDOUT', /sent nothing/))
      listener.close()
      fs.closeSync(descriptor)
    })

    test('if the other process ends early, the next one is served', async () => {
      const descriptor = fileOf('taken by the second')
      const sending = sendDescriptor(path, descriptor)
      UnixSocket.connectTo(path)!.close()
      const received = await receiveDescriptor(path)
      await sending
      assert.equal(readAll(received.descriptor), 'taken by the second')
      closeDescriptor(received.descriptor)

      const listener = UnixSocket.listenAt(path)
      const receiving = receiveDescriptor(path)
      const connection = listener.accept()!
      connection.sendPacket(Buffer.from([0xfd]), [descriptor])
      connection.close()
      listener.close()
      await sendDescriptor(path, descriptor, Buffer.from('again'))
      const second = await receiving
      assert.equal(Buffer.from(second.message).toString(), 'again')
      closeDescriptor(second.descriptor)
      fs.closeSync(descriptor)
    })

    test('data of another program is refused', async () => {
      const descriptor = fileOf('')
      for (const [code, text, send] of [
        ['EPROTO', /not from offerDescriptor/, (to: UnixSocket) => to.sendPacket(Buffer.from('hello'), [descriptor])],
        ['EPROTO', /no descriptor/, (to: UnixSocket) => to.sendByte()],
        [
          'EMSGSIZE',
          /more than/,
          (to: UnixSocket) => to.sendPacket(Buffer.alloc(2 * MOST_MESSAGE_BYTES), [descriptor]),
        ],
      ] as const) {
        const listener = UnixSocket.listenAt(path)
        const receiving = receiveDescriptor(path)
        const connection = listener.accept()!
        send(connection)
        await assert.rejects(receiving, refused('recvmsg', code, text))
        connection.close()
        listener.close()
      }
      fs.closeSync(descriptor)
    })

    test('a process with too many open files is refused, and served later', async () => {
      const descriptor = fileOf('still here')
      const command = ['-c', 'ulimit -n 100 && exec "$0" "$@"', process.execPath, SCRIPT, 'take-when-full', path]
      const child = spawn('sh', command, { stdio: ['ignore', 'pipe', 'inherit'] })
      const output = child.stdout.setEncoding('utf8').toArray()
      const closed = once(child, 'close')
      await sendDescriptor(path, descriptor, undefined, { timeoutMs: 60_000 })
      await closed
      const [refusal, content] = JSON.parse((await output).join(''))
      assert.match(refusal, /recvmsg failed: EMFILE: the descriptor was withheld: too many open files/)
      assert.equal(content, 'still here')
      fs.closeSync(descriptor)
    })

    test('other users are refused', { skip: user !== 0 && 'only the superuser can act as another user' }, async () => {
      const descriptor = fileOf('')
      fs.chmodSync(folder, 0o777)
      const sending = sendDescriptor(path, descriptor, undefined, SHORT)
      assert.throws(() => asNobody(() => UnixSocket.connectTo(path)), refused('connect', 'EACCES', /permission denied/))
      fs.chmodSync(path, 0o666) // gives other users access to the file
      const receiver = asNobody(() => UnixSocket.connectTo(path)!)
      await assert.rejects(sending, refused('getsockopt', 'EPERM', /of user 65534; run both as the same user/))
      receiver.close()

      const listener = asNobody(() => UnixSocket.listenAt(path))
      await assert.rejects(receiveDescriptor(path), refused('getsockopt', 'EPERM', /of user 65534/))
      listener.close()
      fs.closeSync(descriptor)
    })

    test('refusals of the system are named', async () => {
      const descriptor = fileOf('')
      const inNoFolder = join(folder, 'absent', 'socket')
      await assert.rejects(sendDescriptor(inNoFolder, descriptor), refused('bind', 'ENOENT', /absent.socket/))
      await assert.rejects(receiveDescriptor('/dev/null/socket'), refused('connect', 'ENOTDIR', /not a directory/))
      fs.writeFileSync(path, 'precious')
      await assert.rejects(sendDescriptor(path, descriptor), refused('bind', 'EADDRINUSE', /remove the file/))
      assert.equal(fs.readFileSync(path, 'utf8'), 'precious', 'the file of another should stay')
      fs.rmSync(path)
      fs.closeSync(descriptor)
      await assert.rejects(sendDescriptor(path, descriptor), refused('dup', 'EBADF', /descriptor \d+/))
      assert.throws(() => closeDescriptor(descriptor), refused('close', 'EBADF', /descriptor \d+/))
    })

    test('wrong arguments are refused', async () => {
      const message = new Uint8Array(MOST_MESSAGE_BYTES + 1)
      for (const [text, kind, call] of [
        ['path must be a string, not 7', TypeError, () => sendDescriptor(7 as never, 0)],
        ['path must be a string, not undefined', TypeError, () => receiveDescriptor(undefined as never)],
        ['path must be a string, not an Object', TypeError, () => receiveDescriptor({} as never)],
        ['path', RangeError, () => sendDescriptor('', 0)],
        ['path', RangeError, () => sendDescriptor('\0abstract', 0)],
        ['path must be at most 107 bytes', RangeError, () => sendDescriptor('é'.repeat(54), 0)],
        ['path must be at most 107 bytes', RangeError, () => receiveDescriptor('a'.repeat(108))],
        ['descriptor', TypeError, () => sendDescriptor(path, '0' as never)],
        ['descriptor', RangeError, () => sendDescriptor(path, -1)],
        ['descriptor', RangeError, () => sendDescriptor(path, 1.5)],
        ['descriptor', RangeError, async () => closeDescriptor(Number.NaN)],
        ['message', TypeError, () => sendDescriptor(path, 0, 'text' as never)],
        ['message', RangeError, () => sendDescriptor(path, 0, message)],
        ['timeoutMs', RangeError, () => sendDescriptor(path, 0, undefined, { timeoutMs: Number.NaN })],
        ['timeoutMs', RangeError, () => receiveDescriptor(path, { timeoutMs: -1 })],
        ["timeoutMs must be a number, not '5'", TypeError, () => receiveDescriptor(path, { timeoutMs: '5' as never })],
      ] as const) {
        await assert.rejects(call, (error: Error) => error instanceof kind && error.message.includes(text), text)
      }
      await assert.rejects(receiveDescriptor('a'.repeat(107), SHORT), refused('connect', 'ETIMEDOUT', /a{107}/))
    })

    test('unsupported systems are refused', () => {
      for (const [platform, arch] of [
        ['darwin', 'arm64'],
        ['win32', 'x64'],
        ['linux', 'ia32'],
      ]) {
        assert.throws(
          () => openSystem(platform, arch),
          refused('socket', 'ENOTSUP', new RegExp(`not on ${platform} ${arch}`)),
        )
      }
    })
  })
}
