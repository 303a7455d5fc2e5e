// `cuda-mempool keep` as people use it: a keeper in a process of its own, and the commands about the memory it keeps.

import assert from 'node:assert/strict'
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, closeSync, existsSync, mkdtempSync, openSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { KeeperClient } from '../../core/keeper/client.js'
import { TestManager } from '../../core/keeper/store/service-manager.fixture.js'
import { memoryFile } from '../../core/libraries/sealed-memory.js'
import { closeDescriptor } from '../../core/libraries/system-calls.js'
import { MAIN, printed, refused, runProcess } from '../command-line.fixture.js'
import { KEEPER_OPTIONS, keeperOptionsOf } from './keeper-options.js'

const DEVICE = { uuid: 'GPU-1', totalBytes: 2 ** 37, simulated: true }

describe('the words that run a keeper', () => {
  test('are recognised without the other commands', () => {
    const usual = {
      socket: null,
      maxBytes: null,
      maxRegions: 10_000,
      maxDescriptors: null,
      replace: false,
      quiet: false,
    }
    assert.deepEqual(keeperOptionsOf(['keep']), usual)
    const words = [
      'keep',
      '--socket',
      'a',
      '--max-bytes=3KiB',
      '--max-regions',
      '5',
      '--max-descriptors',
      '7',
      '--replace',
    ]
    assert.deepEqual(keeperOptionsOf(words), {
      socket: 'a',
      maxBytes: 3072,
      maxRegions: 5,
      maxDescriptors: 7,
      replace: true,
      quiet: false,
    })
  })

  test('are left to the command line if anything else stands there', () => {
    for (const words of [[], ['why'], ['keep', 'list'], ['keep', '--help'], ['--quiet', 'keep'], ['keep', '--nope']]) {
      assert.equal(keeperOptionsOf(words), null, words.join(' '))
    }
    assert.equal(keeperOptionsOf(['keep', '--max-bytes', 'many']), null)
  })

  test('are those of the help', () => {
    const help = printed(['keep', '--help'])
    for (const option of Object.keys(KEEPER_OPTIONS)) assert.ok(help.includes(`--${option} `), option)
  })

  test('are refused with one line if a value is wrong', () => {
    assert.match(
      refused(['keep', '--max-bytes', 'many']),
      /--max-bytes: 'many' is not a size; write bytes, or like 64KiB/,
    )
    assert.match(refused(['keep', '--max-bytes', '0']), /--max-bytes must be at least 1 byte, not '0'/)
    assert.match(refused(['keep', '--socket', '']), /--socket must name a file/)
    assert.match(refused(['keep', 'list', '--socket', '']), /--socket must name a file/)
    assert.match(refused(['keep', 'drop', '']), /drop: the name of a region is empty/)
    assert.match(refused(['keep', 'prune', '--name', '']), /prune: --name must name a region/)
    assert.match(refused(['keep', '--max-regions', '0']), /--max-regions must be a whole number from 1 to \d+, not '0'/)
    assert.match(
      refused(['keep', '--max-descriptors', '999999']),
      /at most \d+, not 999999: .* ulimit -n allows; raise/,
    )
    assert.match(refused(['keep', '--nope']), /unknown option '--nope'; see cuda-mempool keep --help/)
  })
})

describe('cuda-mempool keep', {
  skip: process.platform !== 'linux' && `works on Linux, not on ${process.platform}`,
}, () => {
  const folder = mkdtempSync(join(tmpdir(), 'keep-'))
  chmodSync(folder, 0o700)
  const socket = join(folder, 'keep.sock')
  let keeper: ChildProcess
  let client: KeeperClient
  before(async () => {
    keeper = spawn(process.execPath, [MAIN, 'keep', '--socket', socket, '--max-bytes', '1MiB'], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    assert.equal(String(await once(keeper.stdout!, 'data')), `keeps device memory; listens at ${socket}\n`)
    client = await KeeperClient.open({ path: socket })
    const descriptor = memoryFile('piece')
    for (const name of ['weights', 'old \u001b[31m']) {
      const { generation } = await client.find({ name, version: 'v1', purpose: 'fill', bytes: 2048, device: DEVICE })
      const pieces = [{ descriptor, bytes: 2048 }]
      await client.commit([{ generation, pieces, bytes: 2048, directory: new Uint8Array(0) }])
      if (name !== 'weights') await client.release(generation)
    }
    closeDescriptor(descriptor)
  })
  after(async () => {
    client.close()
    keeper.kill('SIGKILL')
    rmSync(folder, { recursive: true })
  })

  test('lists regions as a table and as JSON', () => {
    const table = printed(['keep', 'list', '--socket', socket])
    assert.match(table, /^name +version +state +size +last use +readers/)
    assert.match(table, new RegExp(`^weights +v1 +ready +2 KiB +\\d+ s ago +${process.pid}`, 'm'))
    assert.match(table, /^old \?\[31m +v1 +ready +2 KiB +\d+ s ago +none/m)
    const { kind, regions } = JSON.parse(printed(['keep', 'list', '--socket', socket, '--json']))
    assert.deepEqual([kind, regions.length, regions[0].readers], ['keep', 2, [process.pid]])
  })

  test('frees what has no readers, and drops what has', () => {
    const at = ['--socket', socket]
    assert.match(refused(['keep', 'prune', ...at]), /^cuda-mempool: prune: say what to free: --unused 1h, /)
    assert.match(
      refused(['keep', 'prune', '--unused', 'long', ...at]),
      /--unused must be a time like 90s, 30m, .*'long'/,
    )
    assert.match(
      printed(['keep', 'prune', '--unused', '1d', ...at]),
      /^nothing was freed: no such region is without readers\n/,
    )
    assert.equal(printed(['keep', 'prune', '--all', ...at]), 'freed 2 KiB: old ?[31m\n')
    assert.match(printed(['keep', 'prune', '--name', 'weights', ...at]), /^nothing was freed/)
    assert.equal(printed(['keep', 'drop', 'weights', ...at]), 'dropped weights\n')
    assert.match(printed(['keep', 'list', ...at]), /^weights +v1 +retired/m)
    assert.equal(printed(['keep', 'drop', '--force', 'weights', ...at]), 'dropped weights\n')
    assert.equal(printed(['keep', 'list', ...at]), 'nothing is kept\n')
    assert.match(refused(['keep', 'drop', 'weights', ...at]), /'weights' is not kept; cuda-mempool keep list shows/)
  })

  test('serves on with a full disk under its output, ends by a signal, and prints nothing with --quiet', async () => {
    const path = join(folder, 'unread.sock')
    const full = openSync('/dev/full', 'w')
    const unread = spawn(process.execPath, [MAIN, 'keep', '--socket', path], { stdio: ['ignore', full, 'inherit'] })
    closeSync(full)
    const client = await KeeperClient.open({ path, timeoutMs: 60_000 })
    assert.deepEqual(await client.list(), [])
    client.close()
    unread.kill('SIGTERM')
    assert.deepEqual(await once(unread, 'exit'), [0, null])

    const words = [MAIN, '--quiet', 'keep', '--socket', path]
    const quiet = spawn(process.execPath, words, { stdio: ['ignore', 'pipe', 'inherit'] })
    let text = ''
    quiet.stdout.on('data', chunk => {
      text += chunk
    })
    ;(await KeeperClient.open({ path, timeoutMs: 60_000 })).close()
    quiet.kill('SIGTERM')
    assert.deepEqual([...(await once(quiet, 'close')), text], [0, null, ''])
  })

  test('ends after an error of its own, though a thread of it waits for clients', { timeout: 60_000 }, async t => {
    const fail = 'data:text/javascript,process.on("SIGUSR2", () => { throw new Error("planted") })'
    const words = ['--import', fail, MAIN, 'keep', '--socket', join(folder, 'failing.sock')]
    const failing = spawn(process.execPath, words, { stdio: ['ignore', 'pipe', 'pipe'] })
    t.after(() => failing.kill('SIGKILL'))
    await once(failing.stdout, 'data')
    failing.kill('SIGUSR2')
    assert.match(String(await once(failing.stderr, 'data')), /planted/)
    assert.deepEqual(await once(failing, 'exit'), [1, null])
  })

  test('gets its regions back from a service manager, which alone replaces it', async () => {
    const path = join(folder, 'managed.sock')
    const manager = new TestManager(join(folder, 'notify'), path, 100)
    const run = (...words: readonly string[]) => {
      const { env, descriptors } = manager.passed()
      const command = ['-c', 'LISTEN_PID=$$ exec "$0" "$@"', process.execPath, MAIN, 'keep', '--socket', path, ...words]
      return spawn('/bin/sh', command, {
        stdio: ['ignore', 'pipe', 'pipe', ...descriptors],
        env: { ...process.env, ...env },
      })
    }
    const descriptor = memoryFile('piece')
    for (const count of [0, 1]) {
      const managed = run()
      const other = await KeeperClient.open({ path, timeoutMs: 60_000 })
      assert.equal((await other.list()).length, count)
      const { generation } = await other.find({ name: `${count}`, purpose: 'fill', bytes: 9, device: DEVICE })
      await other.commit([{ generation, pieces: [{ descriptor, bytes: 9 }], bytes: 9, directory: new Uint8Array(0) }])
      other.close()
      managed.kill('SIGKILL')
      await once(managed, 'exit')
    }
    for (const [words, text] of [
      [
        ['--replace'],
        /^cuda-mempool: --replace: a service manager has started this keeper; restart it there instead\n$/,
      ],
      [
        ['--max-descriptors', '100'],
        /must be at most 99, not 100: FileDescriptorStoreMax of the unit is 100; raise that/,
      ],
    ] as const) {
      const managed = run(...words)
      const exited = once(managed, 'exit')
      assert.match(String(await once(managed.stderr!, 'data')), text)
      assert.deepEqual(await exited, [2, null])
    }
    closeDescriptor(descriptor)
    await manager.close()
  })

  test('is refused where a keeper runs, and ends with a signal', async () => {
    const { status, stdout, stderr } = runProcess(['keep', '--socket', socket])
    assert.deepEqual([status, stdout], [2, ''])
    assert.match(stderr, /^cuda-mempool: flock failed: EADDRINUSE: a keeper listens at .* already; end it, .*\n$/)
    keeper.kill('SIGTERM')
    assert.deepEqual(await once(keeper, 'exit'), [0, null])
    assert.ok(!existsSync(socket), 'the socket is removed')
    assert.match(refused(['keep', 'list', '--socket', socket]), /no keeper listens at .*; start one: cuda-mempool keep/)
  })
})
