import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import fs, { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { request, type ServerResponse } from 'node:http'
import { syncBuiltinESMExports } from 'node:module'
import { connect, type Socket } from 'node:net'
import { dirname, join } from 'node:path'
import { Writable } from 'node:stream'
import { afterEach, beforeEach, describe, test } from 'node:test'
import { inspect } from 'node:util'
import { MiB } from '../core/base/bytes.js'
import { TestDevice } from '../core/pool/pool.fixture.js'
import { tagged } from '../core/pool/wrappers/tagged.js'
import { readRecording } from '../recordings/trace/formats/read-recording.js'
import { recorded } from '../recordings/trace/recording/recorder.js'
import { framesOf } from '../recordings/trace/trace.js'
import { EventReaders } from './event-readers.js'
import { ask, ownRuntimeFolder } from './live.fixture.js'
import { parseMetrics } from './prometheus-parser.fixture.js'
import type { Requests } from './requests.js'
import { type LiveServer, type ServeOptions, serve } from './serve.js'
import type { WatchedPools } from './watched-pools.js'

let runtime: ReturnType<typeof ownRuntimeFolder>
let device: TestDevice
let servers: LiveServer[]
beforeEach(() => {
  runtime = ownRuntimeFolder()
  device = new TestDevice()
  servers = []
})
afterEach(async () => {
  for (const server of servers) await server.close()
  runtime.restore()
})

async function served(pools: WatchedPools, options?: ServeOptions): Promise<LiveServer> {
  const server = await serve(pools, options)
  servers.push(server)
  return server
}

const jsonOf = async (server: LiveServer, path: string) => JSON.parse((await ask(server, path)).body.toString())

/** A reader of events that takes everything. */
function silent(): ServerResponse {
  return Object.assign(new Writable({ write: (_chunk, _encoding, done) => done() }), {
    writeHead: () => {},
  }) as unknown as ServerResponse
}

describe('the socket', () => {
  test("is this user's alone, named by the process, and gone after close", async () => {
    const server = await served(device.createPool())
    assert.equal(server.socketPath, join(runtime.folder, `${process.pid}.sock`))
    assert.equal(statSync(server.socketPath).mode & 0o777, 0o600)
    assert.equal(server.url, null)
    const second = await served(device.createPool())
    assert.equal(second.socketPath, join(runtime.folder, `${process.pid}-2.sock`))
    await server.close()
    await server.close()
    assert.ok(!existsSync(server.socketPath))
  })

  test("is this user's alone from its first moment, whatever the umask, in a folder that others may change", async t => {
    const folder = join(runtime.folder, '..', 'shared')
    mkdirSync(folder)
    chmodSync(folder, 0o777)
    const socket = join(folder, 'mine.sock')
    const umask = process.umask(0)
    const { linkSync } = fs
    t.after(() => {
      process.umask(umask)
      fs.linkSync = linkSync
      syncBuiltinESMExports()
    })
    const seen: unknown[] = []
    fs.linkSync = (made, path) => {
      seen.push(existsSync(path), statSync(made).mode & 0o777, statSync(dirname(String(made))).mode & 0o777)
      linkSync(made, path)
    }
    syncBuiltinESMExports()
    const server = await served(device.createPool(), { socket })
    assert.deepEqual(seen, [false, 0o600, 0o700])
    assert.deepEqual([readdirSync(folder), statSync(socket).mode & 0o777], [['mine.sock'], 0o600])
    assert.equal((await ask(server, '/stats')).status, 200)
    await server.close()
    assert.deepEqual(readdirSync(folder), [])
  })

  test('is never put over a file that comes meanwhile', async t => {
    const socket = join(runtime.folder, '..', 'mine.sock')
    const { linkSync } = fs
    t.after(() => {
      fs.linkSync = linkSync
      syncBuiltinESMExports()
    })
    fs.linkSync = (made, path) => {
      writeFileSync(path, 'theirs')
      linkSync(made, path)
    }
    syncBuiltinESMExports()
    await assert.rejects(serve([], { socket }), {
      name: 'PoolError',
      message: /EEXIST.*choose another port or socket$/,
    })
    assert.equal(readFileSync(socket, 'utf8'), 'theirs')
    assert.equal(readdirSync(dirname(socket)).length, 1)
  })

  test('is where the program says, unless another server is there', async () => {
    const socket = join(runtime.folder, '..', 'mine.sock')
    await served(device.createPool(), { socket })
    await assert.rejects(serve(device.createPool(), { socket }), { name: 'PoolError', message: /mine\.sock is in use/ })
    await assert.rejects(serve([], { socket: '/no/such/folder/a.sock' }), {
      name: 'PoolError',
      message: /cannot listen/,
    })
    await assert.rejects(serve([], { socket: `/tmp/${'a'.repeat(120)}` }), { name: 'RangeError' })
  })
})

describe('the figures', () => {
  test('are those of each open pool, with tags, and null for no limit', async () => {
    const upstream = device.createPool({ maxPoolBytes: Infinity })
    const pool = tagged(upstream)
    const server = await served({ train: pool })
    pool.inScope('weights', () => pool.allocate(1000))
    const { pid, devices, pools } = await jsonOf(server, '/stats')
    assert.equal(pid, process.pid)
    assert.deepEqual(devices, [{ ordinal: 0, name: 'simulated GPU' }])
    assert.deepEqual(pools[0].stats, { ...upstream.stats(), maxPoolBytes: null })
    assert.equal(pools[0].tags.weights.requestedBytes, 1000)
    assert.equal(pools[0].kind, 'caching')
  })

  test('of pools of one name have names of their own, and closed pools leave', async () => {
    const [first, second] = [device.createPool(), device.createPool()]
    const server = await served({ train: first })
    assert.equal(server.add(second, 'train'), 'train-2')
    assert.equal(server.add(second), 'train-2', 'a pool is served once')
    assert.equal(server.add(device.createHostPool()), 'host')
    const names = async () => (await jsonOf(server, '/stats')).pools.map((pool: { name: string }) => pool.name)
    assert.deepEqual(await names(), ['train', 'train-2', 'host'])
    first.close()
    assert.deepEqual(await names(), ['train-2', 'host'])
    assert.equal(server.add(device.createPool(), 'train'), 'train', 'the name is free again')
  })

  test('are at /metrics as Prometheus reads them', async () => {
    const pool = device.createPool()
    const server = await served({ train: pool })
    pool.allocate(5000)
    const { headers, body } = await ask(server, '/metrics')
    assert.equal(headers['content-type'], 'text/plain; version=0.0.4; charset=utf-8')
    const [sample] = parseMetrics(body.toString()).get('cuda_mempool_requested_bytes')!.samples
    assert.deepEqual(sample, { labels: { pool: 'train', device: '0', kind: 'caching' }, value: 5000 })
  })

  test('come as events, the first at once', async () => {
    const pool = device.createPool()
    const server = await served({ train: pool })
    const asked = request({ socketPath: server.socketPath, path: '/events', agent: false }).end()
    const [response] = await once(asked, 'response')
    const [data] = await once(response.setEncoding('utf8'), 'data')
    assert.equal(response.headers['content-type'], 'text/event-stream')
    assert.match(data, /^data: \{"version":1,.*\}\n\n$/)
    asked.destroy()
  })

  test('tell what is known of a pool that is added on a lost device, also as events', async () => {
    const server = await served([])
    const asked = request({ socketPath: server.socketPath, path: '/events', agent: false }).end()
    const [response] = await once(asked, 'response')
    await once(response.setEncoding('utf8'), 'data')
    const pool = device.createPool()
    const buffer = pool.allocate(1 * MiB)
    device.driver.failCall({ call: 'cuMemsetD8Async', code: 700 })
    device.driver.failCall({ call: 'cuDeviceGetName', code: 700, onwards: true })
    assert.throws(() => buffer.fill(0), { result: 700 })
    server.add(pool)
    const [data] = await once(response, 'data')
    asked.destroy()
    for (const stats of [JSON.parse(data.replace('data: ', '')), await jsonOf(server, '/stats')]) {
      assert.deepEqual(stats.devices, [{ ordinal: 0, name: 'name unknown, as the driver does not answer' }])
      assert.deepEqual([stats.pools.length, stats.pools[0].stats.liveBuffers], [1, 1])
    }
  })

  test('end the process by the error of a defect, which no reader hides', () => {
    const readers = new EventReaders(() => {
      throw new TypeError('a defect')
    })
    assert.throws(() => readers.add(silent(), 100), TypeError)
    assert.throws(() => readers.send(performance.now() + 1000), TypeError)
    readers.close()
  })

  test('come as events with a period from 0 to 60,000 ms only', async () => {
    const server = await served(device.createPool())
    const answered = async (ms: string) => {
      const asked = request({ socketPath: server.socketPath, path: `/events?ms=${ms}`, agent: false }).end()
      const [response] = await once(asked, 'response')
      const [data] = await once(response.setEncoding('utf8'), 'data')
      asked.destroy()
      return [response.statusCode, data]
    }
    for (const ms of ['x', '-5', '60001', '']) {
      const error = `ms must be a number from 0 to 60000, not '${ms}'`
      assert.deepEqual(await answered(ms), [400, JSON.stringify({ error })])
    }
    for (const ms of ['0', '60000']) assert.equal((await answered(ms))[0], 200, ms)
  })
})

test('a snapshot has the blocks of each pool, and is made at most once a second', async () => {
  const pool = device.createPool()
  const server = await served({ train: pool })
  const { ptr } = pool.allocate(5000)
  const first = (await ask(server, '/snapshot')).body.toString()
  const [{ name, snapshot }] = JSON.parse(first).pools
  assert.equal(name, 'train')
  assert.ok(
    snapshot.ranges.some((range: { blocks: { ptr: number }[] }) => range.blocks.some(block => block.ptr === ptr)),
  )
  let looks = 0
  pool.snapshot = () => {
    looks++
    throw new Error('made again')
  }
  assert.equal((await ask(server, '/snapshot')).body.toString(), first)
  assert.equal(looks, 0)
})

test('slow readers of a snapshot share its bytes, and more than 16 are refused', async () => {
  const pool = device.createPool()
  const server = await served({ train: pool })
  for (let block = 0; block < 100_000; block++) pool.allocate(512)
  const sockets: Socket[] = []
  const readers = await Promise.all(
    Array.from({ length: 16 }, async () => {
      const socket = connect(server.socketPath)
      sockets.push(socket)
      socket.write('GET /snapshot HTTP/1.1\r\nHost: x\r\n\r\n')
      await once(socket, 'readable') // and does not read
      return socket
    }),
  )
  assert.equal(readers.length, 16)
  const refused = await ask(server, '/snapshot')
  assert.deepEqual([refused.status, /too many readers of \/snapshot/.test(refused.body.toString())], [503, true])
  assert.equal((await ask(server, '/stats')).status, 200)
  const { snapshot } = (server as unknown as { requests: { snapshot: unknown } }).requests
  assert.ok(Buffer.isBuffer(snapshot) && snapshot.length > 4 * MiB)
  for (const socket of sockets) socket.destroy()
  let status = 503
  while (status === 503) status = (await ask(server, '/snapshot')).status
  assert.equal(status, 200)
})

test('the page runs its own script and style only', async () => {
  const { status, headers, body } = await ask(await served([]), '/')
  assert.equal(status, 200)
  const policy = headers['content-security-policy'] as string
  assert.match(policy, /^default-src 'none'; script-src 'sha256-[^ ]+'; style-src 'sha256-[^ ]+'; connect-src 'self'/)
  const [, script] = /<script>(.*)<\/script>/s.exec(body.toString())!
  assert.ok(policy.includes(`'sha256-${createHash('sha256').update(script).digest('base64')}'`))
  assert.doesNotMatch(body.toString(), /<(script|link|img)[^>]+(src|href)=/, 'nothing is loaded')
})

describe('a recording', () => {
  const record = (server: LiveServer, query = '') => ask(server, `/record?seconds=0.05${query}`, { method: 'POST' })

  test('has what the pool did meanwhile, with the stacks, and what was live before', async () => {
    const pool = device.createPool()
    const server = await served(pool)
    const before = pool.allocate(4 * MiB)
    const recording = record(server, '&stacks=4&stackMinBytes=900')
    await new Promise(resolve => setImmediate(resolve))
    while (Object.hasOwn(pool, 'allocate') === false) await new Promise(resolve => setImmediate(resolve))
    pool.allocate(1000).free()
    pool.allocate(800).free()
    const { status, headers, body } = await recording
    assert.deepEqual([status, headers['x-events']], [200, '7'])
    assert.match(headers['content-disposition'] as string, /^attachment; filename="cuda-mempool-\d+-caching\.pickle"$/)
    const trace = readRecording(body, { name: 'recording' })
    assert.deepEqual([trace.allocations, trace.blocks.initial], [3, 0])
    assert.deepEqual([...trace.blocks.bytes], [before.byteLength, 1000, 800])
    assert.deepEqual(framesOf(trace, 0), [])
    assert.match(framesOf(trace, 1)[0].filename, /serve\.test/)
    assert.deepEqual(framesOf(trace, 4), [])
    assert.equal(Object.hasOwn(pool, 'allocate'), false, 'the pool is as it was')
  })

  test('is of the pool that the request names, one at a time', async () => {
    const server = await served({
      a: device.createPool(),
      b: recorded(device.createPool()),
      host: device.createHostPool(),
    })
    const error = async (query: string) => JSON.parse((await record(server, query)).body.toString()).error
    assert.match(await error(''), /^name the pool by \?pool=; there is 'a', 'b', 'host'$/)
    assert.match(await error('&pool=c'), /^there is no pool 'c', but 'a', 'b', 'host'$/)
    assert.match(await error('&pool=host'), /is a host pool/)
    assert.match(await error('&pool=a&stacks=x'), /^stacks must be a number from 0 to 200, not 'x'$/)
    const first = record(server, '&pool=b')
    const second = record(server, '&pool=b')
    assert.deepEqual([(await first).status, (await second).status].sort(), [200, 409])
  })

  test('ends when its reader leaves, or the server closes', async () => {
    const pool = device.createPool()
    const server = await served(pool)
    const isRecording = async (wanted: boolean) => {
      while (Object.hasOwn(pool, 'allocate') !== wanted) await new Promise(resolve => setImmediate(resolve))
    }
    const asked = request({ socketPath: server.socketPath, path: '/record?seconds=600', method: 'POST', agent: false })
    asked.on('error', () => {})
    asked.end()
    await isRecording(true)
    asked.destroy()
    await isRecording(false)
    const left = ask(server, '/record?seconds=600', { method: 'POST' }).catch(() => null)
    await isRecording(true)
    await server.close()
    await isRecording(false)
    await left
  })
})

test('other paths and methods are refused', async () => {
  const server = await served([])
  for (const [path, method, status] of [
    ['/no', 'GET', 404],
    ['//evil/stats', 'GET', 404],
    ['/stats', 'POST', 405],
    ['/record', 'GET', 405],
    ['/record', 'POST', 404],
  ] as const) {
    assert.equal((await ask(server, path, { method })).status, status, `${method} ${path}`)
  }
  assert.equal((await ask(server, '*')).status, 404)
})

test('a target that is a whole URL, as a proxy gets it, is answered by its path', async () => {
  const server = await served(device.createPool())
  const { status, headers, body } = await ask(server, 'http://elsewhere/stats')
  assert.deepEqual([status, headers['content-type']], [200, 'application/json'])
  assert.equal(JSON.parse(body.toString()).pools.length, 1)
  assert.equal((await ask(server, 'http://elsewhere/no')).status, 404)
  assert.equal((await ask(server, 'http://[/stats')).status, 404)
})

describe('a port', () => {
  test('needs the token and a local name, and listens on this machine only', async () => {
    const server = await served(device.createPool(), { port: 0 })
    const { port, hostname, search } = new URL(server.url!)
    const where = { port: Number(port), host: hostname }
    assert.equal(hostname, '127.0.0.1')
    assert.equal(search, `?token=${server.token}`)
    const status = async (path: string, headers: Record<string, string> = {}) =>
      (await ask(where, path, { headers })).status
    assert.equal(await status(`/stats${search}`), 200)
    assert.equal(await status('/stats', { Authorization: `Bearer ${server.token}` }), 200)
    assert.equal(await status('/stats'), 401)
    assert.equal(await status('/stats?token=wrong'), 401)
    assert.equal(await status('/stats', { Authorization: `Bearer ${server.token}x` }), 401)
    assert.equal(await status(`/stats${search}`, { Host: `localhost:${port}` }), 200)
    for (const Host of ['evil.example', `evil.example:${port}`, '127.0.0.1', '127.0.0.1:1']) {
      assert.equal(await status(`/stats${search}`, { Host }), 403, Host)
    }
    const Host = `127.0.0.1:${port}`
    assert.equal(await status(`http://${Host}/stats${search}`, { Host }), 200)
    assert.equal(await status(`http://${Host}/stats`, { Host }), 401)
    assert.equal(await status(`http://evil.example:${port}/stats${search}`, { Host }), 403)
  })

  test('closes connections that send no request, so that they keep nobody out', async () => {
    const server = await served(device.createPool(), { port: 0 })
    const { port, hostname, search } = new URL(server.url!)
    const where = { port: Number(port), host: hostname }
    const silent = Array.from({ length: 64 }, () => connect(where))
    const closed = silent.map(socket => once(socket, 'close'))
    await Promise.all(silent.map(socket => once(socket, 'connect')))
    for (const socket of silent) socket.on('error', () => {}).resume()
    await assert.rejects(ask(where, `/stats${search}`))
    await Promise.all(closed)
    assert.equal((await ask(where, `/stats${search}`)).status, 200)
  })

  test('is in the line of a log, without the token', async () => {
    const server = await served(device.createPool(), { port: 0 })
    const { socketPath, token } = server
    const port = Number(new URL(server.url!).port)
    assert.equal(inspect(server), `LiveServer { ${socketPath}, port ${port}, open }`)
    assert.ok(!`${server}${JSON.stringify(server)}`.includes(token))
    await server.close()
    assert.deepEqual(JSON.parse(JSON.stringify(server)), { socketPath, port, closed: true })
  })

  test('that is taken is named, and nothing stays open', async () => {
    const first = await served([], { port: 0 })
    const port = Number(new URL(first.url!).port)
    await assert.rejects(serve([], { port }), {
      name: 'PoolError',
      message: /EADDRINUSE.*; choose another port or socket/,
    })
    assert.ok(!existsSync(join(runtime.folder, `${process.pid}-2.sock`)))
  })
})

test('a reader that never reads takes little memory, and is dropped', async () => {
  const server = await served(Array.from({ length: 50 }, () => device.createPlainPool()))
  const { readers } = (server as unknown as { requests: Requests }).requests
  const socket = connect(server.socketPath)
  socket.pause()
  socket.write('GET /events HTTP/1.1\r\nHost: x\r\n\r\n')
  while (readers.count === 0) await new Promise(resolve => setImmediate(resolve))
  const [{ response }] = (readers as unknown as { readers: Set<{ response: ServerResponse }> }).readers
  let most = 0
  for (let event = 1; event < 1000 && readers.count > 0; event++) {
    readers.send(performance.now() + event * 1000)
    most = Math.max(most, response.writableLength)
    await new Promise(resolve => setImmediate(resolve))
  }
  assert.equal(readers.count, 0)
  assert.ok(most < MiB, `${most} bytes waited`)
  socket.destroy()
})

test('wrong arguments are refused by name', async () => {
  await assert.rejects(serve(5 as never), { name: 'TypeError', message: /^serve: pools must be a pool/ })
  const buffer = device.createPool().allocate(1)
  for (const [pools, name] of [
    [buffer, 'a DeviceBuffer'],
    [new Map(), 'a Map'],
  ] as const) {
    const message = `serve: pools must be a pool that can be watched, a list, or pools by name, not ${name}`
    await assert.rejects(serve(pools as never), { name: 'TypeError', message })
  }
  await assert.rejects(serve([], { port: 70_000 }), { name: 'RangeError', message: /^serve: port must be/ })
  await assert.rejects(serve([], { token: 'short' }), { name: 'TypeError', message: /^serve: token must be/ })
  await assert.rejects(serve([], { host: '0.0.0.0' } as never), { message: /^serve: unknown option 'host'/ })
  await assert.rejects(serve([], { socket: 5 as never }), { message: /^serve: socket must be a path/ })
})
