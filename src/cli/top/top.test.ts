import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { createServer as createHttpServer, request, type ServerResponse } from 'node:http'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import { after, afterEach, beforeEach, describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { stripVTControlCharacters as plain } from 'node:util'
import { formatBytes, MiB } from '../../core/base/bytes.js'
import { openDevice } from '../../core/device/open.js'
import { SimulatedDriver } from '../../core/driver/simulated/simulated-driver.js'
import type { CachingPool } from '../../core/pool/caching/caching-pool.js'
import { tagged } from '../../core/pool/wrappers/tagged.js'
import { ask, ownRuntimeFolder } from '../../live/live.fixture.js'
import { type LiveServer, serve } from '../../live/serve.js'
import { PoolRecording } from '../../recordings/trace/recording/pool-recording.js'
import { setQuiet } from '../terminal.js'
import { type TopTerminal, top } from './top.js'

const MAIN = fileURLToPath(new URL('../main.js', import.meta.url))
const driver = new SimulatedDriver()
const device = openDevice(driver)
after(() => device.close())

let runtime: ReturnType<typeof ownRuntimeFolder>
let server: LiveServer
let pool: ReturnType<typeof tagged>
beforeEach(async () => {
  runtime = ownRuntimeFolder()
  pool = tagged(device.createPool({ maxPoolBytes: 64 * MiB }))
  pool.inScope('weights\x1b[31m', () => pool.allocate(20 * MiB))
  pool.allocate(3000)
  server = await serve({ train: pool })
})
afterEach(async () => {
  await server.close()
  runtime.restore()
})

/** A terminal whose screen is a text, and whose keys the test presses. */
class FakeTerminal implements TopTerminal {
  readonly stdin: TopTerminal['stdin'] & PassThrough
  readonly stdout: TopTerminal['stdout']
  readonly writes: string[] = []
  raw = false
  private readonly arrived = new PassThrough()

  constructor(
    columns = 120,
    readonly env: NodeJS.ProcessEnv = { TERM: 'xterm' },
    isTTY = true,
  ) {
    const setRawMode = (mode: boolean) => {
      this.raw = mode
    }
    this.stdin = Object.assign(new PassThrough(), { isTTY, setRawMode }) as never
    const write = (text: string) => {
      this.writes.push(text)
      this.arrived.emit('write')
      return true
    }
    this.stdout = Object.assign(new PassThrough(), { isTTY, columns, rows: 40, write }) as never
  }

  get text(): string {
    return this.writes.join('')
  }

  /** Resolves when a picture that `pattern` matches was written. */
  async shows(pattern: RegExp): Promise<string> {
    for (;;) {
      const found = this.writes.find(text => pattern.test(plain(text)))
      if (found !== undefined) return found
      await once(this.arrived, 'write')
    }
  }

  press(keys: string): void {
    this.writes.length = 0
    this.stdin.write(keys)
  }
}

const DIM = '\x1b[2m'
const RESTORED = '\x1b[?25h\x1b[?1049l'

describe('top', () => {
  test('prints once without a terminal, as --once does, without escapes', async () => {
    for (const [terminal, options] of [
      [new FakeTerminal(120, {}, false), {}],
      [new FakeTerminal(), { once: true }],
    ] as const) {
      await top(undefined, options, terminal)
      assert.equal(terminal.writes.length, 1)
      assert.ok(!terminal.text.includes('\x1b'))
      assert.match(terminal.text, /pool train {3}caching {3}device 0\n/)
      assert.match(terminal.text, /limit {5}64 MiB {2}\[█+/)
      assert.match(terminal.text, /buffers 2 /)
      assert.match(terminal.text, /weights\?\[31m 20 MiB ▇▇▇▇▇▇▇▇/)
    }
  })

  test('prints nothing with --quiet, but the JSON that is asked for', async () => {
    setQuiet(true)
    try {
      for (const json of [false, true]) {
        const terminal = new FakeTerminal()
        await top(String(process.pid), { once: true, json }, terminal)
        assert.equal(terminal.text === '', !json)
      }
    } finally {
      setQuiet(false)
    }
  })

  test('prints the figures as JSON', async () => {
    const terminal = new FakeTerminal()
    await top(String(process.pid), { once: true, json: true }, terminal)
    const { pid, pools } = JSON.parse(terminal.text)
    assert.deepEqual([pid, pools[0].name, pools[0].stats.liveBuffers], [process.pid, 'train', 2])
  })

  test('draws each picture in one write, follows its keys, and restores the terminal', async () => {
    const terminal = new FakeTerminal()
    const running = top(server.socketPath, {}, terminal)
    const picture = await terminal.shows(/buffers 2 /)
    assert.ok(terminal.raw)
    assert.equal(terminal.writes[0], '\x1b[?1049h\x1b[?25l')
    assert.ok(picture.startsWith('\x1b[H') && picture.endsWith('\x1b[J'))
    assert.match(plain(picture), /q quit {3}arrows select/)
    assert.match(picture, /weights/)
    terminal.press('t')
    assert.doesNotMatch(await terminal.shows(/buffers/), /weights/)
    terminal.press('s')
    await terminal.shows(/stream {3}in use {3}cached {2}pending.*0 {8}20 MiB {6}0 B {6}0 B/s)
    terminal.press('l')
    await terminal.shows(/live {6}20 MiB at 0x/)
    terminal.press('p')
    await terminal.shows(/paused; p goes on/)
    terminal.press('q')
    await running
    assert.ok(!terminal.raw)
    assert.ok(terminal.text.endsWith(RESTORED))
    assert.equal(terminal.stdin.listenerCount('data'), 0)
    assert.equal(process.listenerCount('SIGTERM'), 0)
  })

  test('shows memory that waits for work as pending, in the bar and by stream', async () => {
    const stream = device.createStream()
    const freed = pool.allocate(30 * MiB, stream)
    const ticket = driver.holdOperation(stream.handle)
    freed.free()
    const upstream = pool.upstream as CachingPool
    upstream.trimTo(0)
    const pending = `pending ${formatBytes(upstream.stats().pendingBytes)}`
    const terminal = new FakeTerminal()
    const running = top(undefined, {}, terminal)
    assert.match(plain(await terminal.shows(new RegExp(`▞ ${pending}`))), /\[█+▓▒?▞{20,}░*·+\]/)
    terminal.press('s')
    await terminal.shows(/1 {11}0 B {6}0 B 31.9 MiB/)
    terminal.press('q')
    await running
    driver.releaseThrough(stream.handle, ticket)
    stream.close()
  })

  test('restores the terminal at Ctrl-C, at a signal, and when the process ends', async () => {
    const ends: Record<string, (terminal: FakeTerminal) => unknown> = {
      'Ctrl-C': terminal => terminal.press('\x03'),
      signal: () => process.emit('SIGTERM'),
      end: () => server.close(),
    }
    for (const [name, end] of Object.entries(ends)) {
      const terminal = new FakeTerminal()
      const running = top(undefined, {}, terminal)
      await terminal.shows(/buffers 2 /)
      await end(terminal)
      await running
      assert.ok(!terminal.raw, name)
      assert.ok(terminal.text.includes(RESTORED), name)
      assert.equal(/has ended, or serves no more\n$/.test(terminal.text), name === 'end', name)
    }
  })

  test('colours nothing with NO_COLOR', async () => {
    for (const [env, isBold] of [
      [{ TERM: 'xterm' }, true],
      [{ TERM: 'xterm', NO_COLOR: '1' }, false],
    ] as const) {
      const terminal = new FakeTerminal(100, env)
      const running = top(undefined, {}, terminal)
      assert.equal((await terminal.shows(/buffers 2 /)).includes('\x1b[1m'), isBold)
      terminal.press('q')
      await running
    }
  })

  test('says what to do about a process that is not there', async () => {
    const refused = (target: string | undefined, message: RegExp) =>
      assert.rejects(top(target, {}, new FakeTerminal()), { name: 'UsageError', message })
    await refused('1', /^top: the process 1 is not served \(served: \d+\); call serve\(pool\)/)
    await refused('/no/such.sock', /^top: there is no socket \/no\/such\.sock$/)
    await refused(MAIN, /is no socket$/)
    const second = await serve(device.createPool())
    await refused(undefined, /^top: several are served: \S+sock, \S+sock; name one$/)
    await second.close()
    await server.close()
    await refused(undefined, /^top: no process of this user is served; call serve\(pool\)/)
  })

  test('refuses a socket that speaks something else', async () => {
    const path = join(runtime.folder, '..', 'other.sock')
    const other = createServer(socket => socket.end('HTTP/1.1 404 No\r\n\r\nno')).listen(path)
    await once(other, 'listening')
    await assert.rejects(top(path, {}, new FakeTerminal(80, {}, false)), {
      name: 'UsageError',
      message: 'top: the socket is not one of cuda-mempool',
    })
    other.close()
  })

  test('refuses answers of other servers with status 200, and those that are cut short', async t => {
    const path = join(runtime.folder, '..', 'other.sock')
    let answer = ''
    const other = createHttpServer((_, response) => {
      response.writeHead(200, { 'Content-Length': 5 })
      if (answer.length === 5) response.end(answer)
      else response.write(answer, () => response.destroy())
    }).listen(path)
    await once(other, 'listening')
    t.after(() => other.close())
    const foreign = 'top: the socket is not one of cuda-mempool'
    const answers = {
      hello: foreign,
      '[{}] ': foreign,
      'null ': foreign,
      '{"': `top: ${path} does not answer (aborted)`,
    }
    for (const [text, message] of Object.entries(answers)) {
      answer = text
      await assert.rejects(top(path, { once: true }, new FakeTerminal()), { name: 'UsageError', message })
      await assert.rejects(top(path, { json: true }, new FakeTerminal()), { name: 'UsageError', message })
    }
  })

  test('refuses figures that are not those of pools, in one line', async t => {
    const path = join(runtime.folder, '..', 'other.sock')
    const { body } = await ask({ socketPath: server.socketPath }, '/stats')
    const stats = JSON.parse(body.toString())
    const [train] = stats.pools
    const pool = (change: object) => ({ ...stats, pools: [{ ...train, ...change }] })
    let answer: unknown
    const other = createHttpServer(({ url }, response) => {
      const json = JSON.stringify(answer)
      response.end(url === '/stats' ? json : `data: ${json}\n\n`)
    }).listen(path)
    await once(other, 'listening')
    t.after(() => other.close())
    const others = [
      { version: 1, pools: [{}] },
      { version: 1, pools: [], devices: 'x' },
      { ...stats, pid: '\u009b2J' },
      { ...stats, command: 1 },
      { ...stats, devices: [null] },
      { ...stats, devices: [{ ordinal: 0, name: {} }] },
      { ...stats, pools: { length: 1 } },
      pool({ name: null }),
      pool({ tags: { a: null } }),
      pool({ tags: 1, stats: null }),
      pool({ stats: { ...train.stats, liveBytes: '1' } }),
      pool({ stats: { ...train.stats, maxPoolBytes: -1 } }),
      { ...stats, shelves: {} },
      { ...stats, shelves: [{ name: 'a', models: [] }] },
      { ...stats, regions: [{ name: 'a' }] },
      { ...stats, regions: [5] },
    ]
    const refusal = { name: 'UsageError', message: 'top: the socket is not one of cuda-mempool' }
    for (const each of others) {
      answer = each
      for (const options of [{ once: true }, { json: true }, {}]) {
        await assert.rejects(top(path, options, new FakeTerminal()), refusal, JSON.stringify(each))
      }
    }
    answer = pool({ name: '\u009b2J\u202e' })
    const terminal = new FakeTerminal()
    await top(path, { json: true }, terminal)
    assert.match(terminal.text, /\\u009b2J\\u202e/)
    const { shelves, regions, ...older } = stats
    answer = older
    const second = new FakeTerminal()
    await top(path, { json: true }, second)
    const { shelves: none, regions: nothing } = JSON.parse(second.text)
    assert.deepEqual([shelves, regions, none, nothing], [[], [], [], []], 'an older process serves pools only')
  })

  test('gives up a process that does not answer, or sends for ever', async t => {
    const path = join(runtime.folder, '..', 'other.sock')
    let answer: (response: ServerResponse) => void = () => {}
    const other = createHttpServer((_, response) => answer(response)).listen(path)
    await once(other, 'listening')
    t.after(() => {
      other.close()
      other.closeAllConnections()
    })
    for (const options of [{ once: true }, {}]) {
      await assert.rejects(top(path, options, new FakeTerminal(), 1, 20), {
        name: 'UsageError',
        message: `top: ${path} does not answer within 0.02 s`,
      })
    }
    answer = response => response.writeHead(200).write(' ')
    await assert.rejects(top(path, { once: true }, new FakeTerminal(), 1, 20), /does not answer within 0.02 s$/)
    const spaces = Buffer.alloc(2 ** 20, ' ')
    answer = response => {
      const more = () => {
        while (!response.destroyed && response.write(spaces)) {}
      }
      response.on('drain', more)
      more()
    }
    await assert.rejects(top(path, { once: true }, new FakeTerminal(), 1, 60_000), {
      name: 'UsageError',
      message: `top: ${path} sends more than 64 MiB`,
    })
  })

  test('says from 2 s on when a stopped process answered last, until it answers again', async t => {
    const path = join(runtime.folder, '..', 'other.sock')
    const stats = (await ask(server, '/stats')).body.toString()
    let response: ServerResponse
    const other = createHttpServer((_, begun) => {
      response = begun
      response.write(`data: ${stats}\n\n`)
    }).listen(path)
    await once(other, 'listening')
    t.after(() => other.close())
    t.mock.timers.enable({ apis: ['setInterval'] })
    const terminal = new FakeTerminal()
    const running = top(path, {}, terminal)
    await terminal.shows(/buffers 2 /)
    terminal.writes.length = 0
    t.mock.timers.tick(1500)
    assert.deepEqual(terminal.writes, [])
    t.mock.timers.tick(500)
    assert.match(plain(terminal.text), /last answer 2 s ago.*buffers 2 /s)
    assert.ok(terminal.text.includes(`${DIM}buffers 2`))
    t.mock.timers.tick(10_000)
    await terminal.shows(/last answer 12 s ago/)
    terminal.writes.length = 0
    response!.write(`data: ${stats}\n\n`)
    const picture = await terminal.shows(/buffers 2 /)
    assert.ok(!picture.includes('last answer') && !picture.includes(`${DIM}buffers 2`))
    response!.end()
    await running
  })

  test('says that there are too many readers, not that the process has ended', async () => {
    const readers = Array.from({ length: 16 }, () => request({ socketPath: server.socketPath, path: '/events' }).end())
    await Promise.all(readers.map(reader => once(reader, 'response')))
    const terminal = new FakeTerminal()
    await assert.rejects(top(undefined, {}, terminal), {
      name: 'UsageError',
      message: 'top: too many readers of /events; end another one',
    })
    assert.ok(terminal.text.endsWith(RESTORED) && !terminal.raw)
    for (const reader of readers) reader.destroy()
  })

  test('ends quietly by a key before the process answers', async () => {
    const path = join(runtime.folder, '..', 'busy.sock')
    const busy = createServer(() => {}).listen(path)
    await once(busy, 'listening')
    const terminal = new FakeTerminal()
    const running = top(path, {}, terminal)
    await once(busy, 'connection')
    terminal.press('q')
    await running
    assert.ok(terminal.text.endsWith(RESTORED))
    busy.close()
  })
})

test('the program prints through a pipe and ends', async () => {
  const child = spawn(process.execPath, [MAIN, 'top', '--once'], { env: { ...process.env, LC_ALL: 'C.UTF-8' } })
  let [stdout, stderr] = ['', '']
  child.stdout.on('data', data => {
    stdout += data
  })
  child.stderr.on('data', data => {
    stderr += data
  })
  const [status] = await once(child, 'close')
  assert.deepEqual([status, stderr], [0, ''])
  assert.match(stdout, /^cuda-mempool top/)
  assert.match(stdout, /\npool train /)
})

test('key e writes a recording beside, and names the next line', { timeout: 60_000 }, async t => {
  const folder = mkdtempSync(join(tmpdir(), 'cuda-mempool-top-'))
  const before = process.cwd()
  process.chdir(folder)
  t.after(() => {
    process.chdir(before)
    rmSync(folder, { recursive: true })
  })
  const terminal = new FakeTerminal()
  const running = top(undefined, {}, terminal, 0.02)
  await terminal.shows(/buffers 2 /)
  terminal.press('e')
  const path = `cuda-mempool-${process.pid}.pickle`
  await terminal.shows(new RegExp(`wrote ${path}.*cuda-mempool report ${path}`, 's'))
  terminal.press('q')
  await running
  assert.match(terminal.text, new RegExp(`wrote ${path}\nNext: npx cuda-mempool report ${path}\n$`), 'below the screen')
  assert.deepEqual(readdirSync(folder), [path])
  assert.ok(readFileSync(path).length > 100 && existsSync(path))
})

test('key q ends a recording that runs', { timeout: 60_000 }, async () => {
  const terminal = new FakeTerminal()
  const running = top(undefined, {}, terminal, 600)
  await terminal.shows(/buffers 2 /)
  terminal.press('e')
  while (!PoolRecording.isRecording(pool)) await new Promise(resolve => setImmediate(resolve))
  terminal.press('q')
  await running
  while (PoolRecording.isRecording(pool)) await new Promise(resolve => setImmediate(resolve))
})
