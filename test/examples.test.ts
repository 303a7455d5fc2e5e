// Runs the examples on the simulated device, and compares them with the recipes, which have their code and output.

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync } from 'node:fs'
import { type AddressInfo, createServer } from 'node:net'
import { basename, join } from 'node:path'
import { text } from 'node:stream/consumers'
import { after, describe, test } from 'node:test'
import { parse } from 'yaml'
import { blocks, ENV, node, ROOT, read, runAll } from './documents.fixture.js'

/** Those that need a process of their own: tests, and a server that runs until it is told to end. */
const ALONE = ['cache.test.ts', 'server.ts']
const EXAMPLES = readdirSync(join(ROOT, 'examples'))
const RECIPES = readdirSync(join(ROOT, 'docs/recipes'))
  .filter(name => name !== 'README.md')
  .map(name => {
    const text = read(`docs/recipes/${name}`)
    const example = /\]\(\.\.\/\.\.\/examples\/([\w.-]+\.ts)\)/.exec(text)?.[1]
    return { name, text, example, code: blocks(text, 'ts'), output: blocks(text, 'text')[0] }
  })
const recipeOf = (example: string) => RECIPES.find(recipe => recipe.example === example && recipe.code.length > 0)
const built = (example: string) => join(ROOT, 'dist/examples', `${basename(example, '.ts')}.js`)

describe('examples', () => {
  test('run, and print what their recipes show', () => {
    const names = EXAMPLES.filter(name => !ALONE.includes(name))
    const printed = runAll(names.map(built), '--enable-source-maps')
    assert.equal(printed.length, names.length)
    for (const [index, said] of printed.entries()) {
      assert.ok(said.length > 0 && !said.includes('undefined'), `${names[index]} prints:\n${said}`)
      const recipe = recipeOf(names[index])
      if (recipe !== undefined) assert.equal(said, recipe.output, recipe.name)
    }
  })

  test('that are tests pass, with the titles that the recipe shows', () => {
    const said = node('--test', '--test-reporter=spec', built('cache.test.ts'))
    const passed = [...said.matchAll(/^ +(✔ .*) \([\d.]+ms\)$/gm)].map(([, title]) => `${title}\n`)
    assert.equal(passed.join(''), recipeOf('cache.test.ts')?.output)
  })
})

describe('data-parallel training', { timeout: 60_000 }, () => {
  const start = (...args: string[]) => {
    const child = spawn(process.execPath, [built('data-parallel.ts'), ...args], { env: ENV })
    const status = once(child, 'close').then(([code]) => code)
    return Promise.all([text(child.stdout), text(child.stderr), status])
  }

  test('runs on several hosts: rank 0 gives its id to the others, which may come first', async () => {
    const server = createServer().listen(0, '127.0.0.1')
    await once(server, 'listening')
    const { port } = server.address() as AddressInfo
    server.close()
    const ranks = [2, 1, 0].map(rank => start('--hosts', `127.0.0.1:${port}`, '--rank', `${rank}`, '--ranks', '3'))
    for (const ended of await Promise.all(ranks)) {
      assert.deepEqual(ended, ['world of 3: equal weights, and the loss has fallen\n', '', 0])
    }
  })

  test('says what it takes, and refuses wrong input in one line', async () => {
    const [help, warned, status] = await start('--help')
    assert.match(help, /^usage: data-parallel .*--hosts HOST:PORT --rank R --ranks N/s)
    assert.deepEqual([warned, status], ['', 0])
    for (const words of [
      '--gpus 2',
      '--rank 0',
      '--hosts a --rank 0 --ranks 2',
      '--hosts a:1 --rank 2 --ranks 2',
      'x',
    ]) {
      const [said, warning, status] = await start(...words.split(' '))
      assert.match(warning, /^data-parallel: [^\n]+\n$/, words)
      assert.deepEqual([said, status], ['', 2], words)
    }
  })
})

describe('recipes', () => {
  test('have the code of their example', () => {
    assert.ok(RECIPES.length >= 13)
    for (const { name, example, code } of RECIPES.filter(recipe => recipe.name !== 'containers.md')) {
      assert.ok(example !== undefined && code.length === 1, name)
      assert.equal(code[0], read(`examples/${example}`), name)
      assert.ok(code[0].includes(`docs/recipes/${name} `), `${example} names its recipe`)
    }
  })

  test('for containers name a server, commands and options that there are', () => {
    const { text } = RECIPES.find(({ name }) => name === 'containers.md')!
    const { spec } = parse(blocks(text, 'yaml')[0])
    const [container] = spec.template.spec.containers
    const source = read('examples/server.ts')
    const port = Number(/'PORT'\] \?\? (\d+)/.exec(source)![1])
    assert.ok(blocks(text, 'dockerfile')[0].includes(`EXPOSE ${port}\n`))
    assert.deepEqual(
      [container.ports[0].containerPort, container.readinessProbe.httpGet, container.livenessProbe.httpGet],
      [port, { path: '/health', port }, { path: '/health', port }],
    )
    const shutdownMs = Number(/'MOST_SHUTDOWN_MS'\] \?\? ([\d_]+)/.exec(source)![1].replace('_', ''))
    const pauseMs = 1000 * container.lifecycle.preStop.sleep.seconds
    assert.ok(1000 * spec.template.spec.terminationGracePeriodSeconds > pauseMs + shutdownMs)
    const check = ['node_modules/.bin/cuda-mempool', 'info', '--check']
    assert.deepEqual(container.startupProbe.exec.command, check)
    assert.deepEqual(JSON.parse(/^HEALTHCHECK .* CMD (.*)$/m.exec(blocks(text, 'dockerfile')[0])![1]), check)
    assert.ok(node(join(ROOT, 'dist/lib/cli/main.js'), 'info', '--help').includes('--check'))
  })
})

describe('the server', { timeout: 60_000 }, () => {
  /** The test decides what happens, and no time limit. */
  const PATIENT = { MOST_WAITING_MS: '600000', MOST_SHUTDOWN_MS: '600000' }
  const processes: { kill(signal: 'SIGKILL'): void }[] = []
  after(() => {
    for (const each of processes) each.kill('SIGKILL') // those that a failed test has left
  })

  async function start(env: Record<string, string> = {}) {
    const server = spawn(process.execPath, [built('server.ts')], { env: { ...ENV, PORT: '0', ...env } })
    processes.push(server)
    let [said, warned] = ['', '']
    server.stderr.setEncoding('utf8').on('data', text => {
      warned += text
    })
    server.stdout.setEncoding('utf8').on('data', text => {
      said += text
    })
    await once(server.stdout, 'data')
    const url = /http:\S+/.exec(said)![0]
    const health = async () => (await fetch(`${url}/health`)).text()
    return {
      url,
      /** Sends a request that lasts until its client leaves; returns how it leaves. */
      hold(): () => Promise<string> {
        const client = new AbortController()
        const outcome = fetch(`${url}/?ms=${2 ** 30}`, client).then(String, error => error.name)
        return () => {
          client.abort()
          return outcome
        }
      },
      /** Asks until `arenas` are available and `waiting` requests wait. */
      async until(arenas: number, waiting: number): Promise<void> {
        while (!(await health()).startsWith(`ArenaQueue { ${arenas} of 2 arenas available, ${waiting} waiting }, `));
      },
      /** Asks until it takes no more connections. */
      async untilClosed(): Promise<void> {
        while ((await health().catch(() => 'closed')) !== 'closed');
      },
      /** Tells it to end, which it must with status 0, no warning of held buffers, and the output of the recipe. */
      async end(): Promise<void> {
        const closed = once(server, 'close')
        server.kill('SIGTERM')
        assert.deepEqual([await closed, warned], [[0, null], ''])
        assert.equal(said.replace(url, 'http://localhost:8080'), recipeOf('server.ts')?.output)
      },
    }
  }

  test('answers as the recipe shows, and refuses what never fits', async () => {
    const { url, until, end } = await start(PATIENT)
    const shown = recipeOf('server.ts')!.text.matchAll(/^\$ curl 'localhost:8080(\S+)'\n(.*\n)/gm)
    const calls = [...shown].map(([, path, answer]) => ({ path, answer }))
    assert.ok(calls.length >= 2)
    for (const { path, answer } of calls) assert.equal(await (await fetch(url + path)).text(), answer)
    const statuses = await Promise.all(
      ['/?count=1000', '/?count=-1', `/?count=${2 ** 22}`].map(async path => (await fetch(url + path)).status),
    )
    assert.deepEqual(statuses, [200, 400, 413])
    await until(2, 0)
    await end()
  })

  test('answers 503 when too many wait, and serves others when clients leave', async () => {
    const { url, hold, until, end } = await start(PATIENT)
    const running = [hold(), hold()]
    await until(0, 0)
    const leave = hold()
    await until(0, 1)
    const waiting = Array.from({ length: 3 }, async () => (await fetch(url)).status)
    await until(0, 4)
    const refused = await fetch(url)
    assert.deepEqual([refused.status, refused.headers.get('Retry-After')], [503, '1'])
    assert.equal(await leave(), 'AbortError')
    await until(0, 3) // it has given its turn up
    for (const leave of running) await leave()
    assert.deepEqual(await Promise.all(waiting), [200, 200, 200])
    await until(2, 0) // no arena is lost
    await end()
  })

  test('answers 503 when a request waits too long, and cuts work off that does not end', async () => {
    const { url, hold, until, end } = await start({ MOST_WAITING_MS: '1', MOST_SHUTDOWN_MS: '1' })
    const running = [hold(), hold()]
    await until(0, 0)
    const late = await fetch(url)
    assert.deepEqual([late.status, late.headers.get('Retry-After')], [503, '1'])
    await end()
    for (const leave of running) assert.equal(await leave(), 'TypeError') // fetch's, for a closed connection
  })

  test('answers the requests that have come before it ends', async () => {
    const { url, hold, until, untilClosed, end } = await start(PATIENT)
    const running = [hold(), hold()]
    await until(0, 0)
    const waiting = fetch(url)
    await until(0, 1)
    const ended = end()
    await untilClosed()
    for (const leave of running) await leave()
    assert.equal((await waiting).status, 200)
    await ended
  })
})
