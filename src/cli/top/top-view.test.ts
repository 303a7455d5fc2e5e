import assert from 'node:assert/strict'
import { after, describe, test } from 'node:test'
import { MiB } from '../../core/base/bytes.js'
import { openDevice } from '../../core/device/open.js'
import type { CachingPool } from '../../core/pool/caching/caching-pool.js'
import { tagged } from '../../core/pool/wrappers/tagged.js'
import { type ProcessStats, statsOf } from '../../live/process-stats.js'
import { PoolList } from '../../live/watched-pools.js'
import { plainText } from './styled-lines.js'
import { keysIn } from './terminal-keys.js'
import { History, TopModel } from './top-model.js'
import { KEYS, onceLines, screenLines } from './top-view.js'

const device = openDevice('simulated')
after(() => device.close())
const pool = tagged(device.createPool({ maxPoolBytes: 64 * MiB }))
pool.inScope('weights', () => pool.allocate(20 * MiB))
pool.allocate(3000)
const pools = new PoolList('test', { train: pool })

function served(): ProcessStats {
  return statsOf(pools)
}

/** The details of a pool, or all pools, on a screen. */
function view(stats: ProcessStats, columns: number, env: NodeJS.ProcessEnv = {}, rows = 60, change: object = {}) {
  const model = new TopModel()
  model.add(stats)
  const shown = { tags: true, streams: true, live: true, keys: true }
  Object.assign(model, { shown, isPaused: true, isDetailed: true, message: 'a; b' }, change)
  return screenLines(model, columns, rows, env).map(plainText)
}

describe('the picture', () => {
  /** The figures of ten pools like the one that is served; the fourth has refused requests, and made streams wait. */
  function tenPools(): ProcessStats {
    const stats = served()
    const [pool] = stats.pools
    const bytes = { liveBytes: 20 * MiB, reservedBytes: 20 * MiB, requestedBytes: 20 * MiB }
    const pools = Array.from({ length: 10 }, (_, index) => ({
      ...pool,
      name: `pool-${index}`,
      outOfMemory: index === 3 ? 3 : 0,
      stats: { ...pool.stats, ...bytes, insertedWaits: index === 3 ? 7 : 0 },
    }))
    return { ...stats, pools }
  }

  test('fits every width, in the letters of the locale', () => {
    const stats = served()
    for (const columns of [1, 20, 40, 80, 200]) {
      const lines = view(stats, columns, {})
      assert.ok(
        lines.every(line => line.length <= Math.max(8, columns)),
        `${columns} columns:\n${lines.join('\n')}`,
      )
      for (const line of view(stats, columns, { LC_ALL: 'C' })) assert.match(line, /^[ -~]*$/)
    }
    const narrow = view(stats, 20).join('\n')
    for (const part of [/^limit {5}64 MiB$/m, /^in use {4}20 MiB$/m, /^reserved {2}\d/m, /^buffers 2$/m])
      assert.match(narrow, part)
    for (const columns of [20, 40, 80]) {
      const texts = view(stats, columns).flatMap(line => line.split('   '))
      assert.deepEqual(
        KEYS.filter(key => !texts.includes(key)),
        [],
        `${columns} columns cut no key`,
      )
    }
  })

  test('shows a line for each of ten pools, their sum, and the selected one, at every size', () => {
    const stats = tenPools()
    for (const [columns, rows] of [
      [40, 12],
      [80, 24],
      [200, 60],
    ] as const) {
      for (let steps = 0; steps < 10; steps++) {
        const model = new TopModel()
        model.add(stats)
        for (let step = 0; step < steps; step++) model.press('down')
        const lines = screenLines(model, columns, rows, {}).map(plainText)
        assert.equal(lines.length, rows)
        assert.ok(lines.every(line => line.length <= columns))
        assert.match(lines[1], /^10 pools {3}in use 200 MiB {3}OOM 3/)
        const pools = lines.filter(line => /^[> ][ !]pool-\d/.test(line))
        assert.equal(pools.length, rows === 12 ? 8 : 10)
        const selected = new RegExp(`^> pool-${steps} +█+.*20 MiB`)
        assert.equal(pools.filter(line => selected.test(line)).length, 1, `${steps} down at ${columns} columns`)
        if (rows > 12) assert.ok(lines.includes(`pool pool-${steps}   caching   device 0`))
        if (columns > 40) assert.match(pools[3], /20 MiB +20 MiB +64 MiB.* 3 +7/)
        assert.match(lines.at(-1)!, /q quit {3}arrows select/)
      }
    }
    const hasNone = view({ ...stats, pools: [] }, 80, {}, 24, { isDetailed: false })
    assert.equal(hasNone[1], 'no pool is open now')
  })

  test('orders the pools by name and by figures, marks the column, and keeps the selected pool', () => {
    const stats = tenPools()
    const model = new TopModel()
    const figures = (index: number) => ({ liveBytes: ((index * 3) % 10) * MiB, reservedBytes: (100 - index) * MiB })
    const pools = stats.pools.map((pool, index) => ({ ...pool, stats: { ...pool.stats, ...figures(index) } }))
    model.add({ ...stats, pools: pools.toReversed() })
    for (let step = 0; step < 2; step++) model.press('down')
    const seen: string[] = []
    for (let step = 0; step < 6; step++) {
      const lines = screenLines(model, 100, 24, { LC_ALL: 'C' }).map(plainText)
      const rows = lines.filter(line => /^[> ][ !]pool-\d/.test(line))
      const marked = /\*(\w+( use)?)/.exec(lines.find(line => line.includes('to 100 MiB'))!)?.[1] ?? ''
      seen.push(`${marked} ${rows.map(line => line[7]).join('')}`)
      assert.equal(rows.filter(line => line.startsWith('> pool-7')).length, 1)
      model.press('o')
    }
    const opened = ' 9876543210'
    assert.deepEqual(seen, [
      opened,
      'pool 0123456789',
      'in use 3692581470',
      'reserved 0123456789',
      'OOM 3987654210',
      opened,
    ])
  })

  test('shows the details of the selected pool by Enter, and scrolls them', () => {
    const model = new TopModel()
    model.add(tenPools())
    const lines = () => screenLines(model, 40, 8, {}).map(plainText)
    model.press('down')
    model.press('enter')
    assert.equal(lines()[2], 'pool pool-1   caching   device 0')
    model.press('down')
    assert.match(lines()[2], /^limit/)
    for (let step = 0; step < 30; step++) model.press('pageDown')
    assert.match(lines().at(-2)!, /^untagged/, 'not beyond the end')
    model.press('escape')
    assert.match(lines()[4], /^> pool-1/)
  })

  test('shows a refused request as a mark and in colour, and says for 10 s which pool', () => {
    const model = new TopModel()
    const stats = tenPools()
    const later = (ms: number, outOfMemory: number) => ({
      ...stats,
      timeMs: stats.timeMs + ms,
      pools: stats.pools.map((pool, index) => (index === 3 ? { ...pool, outOfMemory } : pool)),
    })
    model.add(stats)
    assert.doesNotMatch(view(stats, 100, {}, 24, { isDetailed: false })[0], /out of memory/)
    for (const count of [4, 4, 5]) model.add(later(500, count))
    for (let step = 0; step < 3; step++) model.press('down')
    const lines = screenLines(model, 100, 24, {})
    assert.match(plainText(lines[0]), /out of memory: pool-3/)
    const texts = lines.map(plainText)
    assert.ok(texts.some(line => /^>!pool-3 /.test(line)))
    assert.ok(texts.some(line => /^out of memory 5 {8}! !$/.test(line)))
    const alarms = lines.flat().filter(({ tone }) => tone === 'alarm')
    assert.ok(['out of memory: pool-3', 'OOM 5', '     5'].every(text => alarms.some(each => each.text === text)))
    model.add(later(10_500, 5))
    assert.doesNotMatch(plainText(screenLines(model, 100, 24, {})[0]), /out of memory/)
  })

  test('shows shelves with their models, and kept regions, below the pools', async () => {
    const shelf = device.createShelf({ budgetBytes: 8 * MiB })
    const load = (memory: CachingPool) => memory.allocate(MiB)
    shelf.add('chat', { bytes: 8 * MiB, load })
    shelf.add('code', { bytes: 4 * MiB, load })
    await shelf.use('chat', () => {})
    await shelf.use('code', () => {})
    const own = new PoolList('test', shelf)
    const [{ models, ...shown }] = own.figures().shelves
    assert.deepEqual([shown.name, shown.device, shown.budgetBytes], ['shelf', 0, 8 * MiB])
    const stats = served()
    const hour = 3_600_000
    const region = {
      name: 'weights',
      version: 'v1',
      generation: 4,
      bytes: 32 * MiB,
      device: 'gpu',
      state: 'ready',
    } as const
    const told = { readers: 2, lastUse: stats.timeMs, here: 'filled' } as const
    const more: ProcessStats = {
      ...stats,
      shelves: [{ ...shown, models: models.map(model => ({ ...model, lastUsedAt: stats.timeMs - 2 * hour })) }],
      regions: [
        { ...region, ...told },
        { ...region, name: 'old\x1b[31m', readers: 0, lastUse: stats.timeMs - 5 * hour, here: null },
        { ...region, name: 'new', state: 'filling', readers: null, lastUse: null, here: 'filling' },
      ],
    }
    const lines = onceLines(more, 100, {}).map(plainText)
    for (const [index, pattern] of [
      /^shelf shelf {3}device 0 {3}awake 4 MiB of 8 MiB {3}waiting 0 {3}switches 2 {3}the last took \d+ ms$/,
      /^model +state +size +running +last use$/,
      /^─/,
      /^chat +asleep +8 MiB +0 +2 h ago$/,
      /^code +awake +4 MiB +0 +2 h ago$/,
      /^$/,
      /^kept regions {3}64 MiB {3}without readers 32 MiB$/,
      /^region +version +state +size +readers +last use +here$/,
      /^─/,
      /^weights +v1 +ready +32 MiB +2 +0 s ago +filled$/,
      /^old\?\[31m +v1 +ready +32 MiB +none +5 h ago +–$/,
      /^new +v1 +filling +32 MiB +– +– +filling$/,
    ].entries()) {
      assert.match(lines.slice(-12)[index], pattern)
    }
    const served40 = view(more, 100, {}, 40, { isDetailed: false })
    assert.ok(served40.some(line => line.startsWith('code ')) && served40.some(line => line.startsWith('new ')))
    const served20 = view(more, 100, {}, 20, { isDetailed: false })
    assert.ok(served20.includes('… top --once shows all'), served20.join('\n'))
    assert.equal(served20.length, 20)
    assert.ok(view(more, 100, {}, 9, { isDetailed: false }).every(line => !line.startsWith('shelf')))
    assert.ok(
      view(more, 100, {}, 60, {}).every(line => !line.startsWith('shelf')),
      'details of a pool have the screen',
    )
    await shelf.close()
    assert.deepEqual(own.figures().shelves, [])
  })

  test('reads the keys of terminals, and no key in unknown sequences', () => {
    assert.deepEqual(keysIn('q\x1b[A\x1bOB\x1b[5~\r\x1b[1;5C\x1b'), [
      'q',
      'up',
      'down',
      'pageUp',
      'enter',
      '\x1b[1;5C',
      'escape',
    ])
  })

  test('shows misses as a share of at most 100 %, also if requests were refused', () => {
    const stats = served()
    for (const [allocations, cacheMisses, shown] of [
      [1, 100, '100 %'],
      [0, 5, '100 %'],
      [200, 50, '25.0 %'],
      [0, 0, '0.0 %'],
    ] as const) {
      const [pool] = stats.pools
      const pools = [{ ...pool, stats: { ...pool.stats, allocations, cacheMisses } }]
      const lines = view({ ...stats, pools }, 200, {}).join('\n')
      assert.ok(lines.includes(` misses ${shown} `), `${cacheMisses} of ${allocations}:\n${lines}`)
    }
  })

  test('shows a rate from the second figures on', () => {
    const history = new History(3)
    const stats = (allocations: number, timeMs: number) =>
      ({ timeMs, pools: [{ name: 'a', stats: { allocations, liveBytes: 1, reservedBytes: 2 } }] }) as never
    const [{ name }] = [{ name: 'a' }]
    history.add(stats(10, 1000))
    assert.equal(history.rate({ name, stats: { allocations: 10 } } as never), null)
    history.add(stats(20, 1500))
    assert.equal(history.rate({ name, stats: { allocations: 20 } } as never), 20)
    for (let more = 0; more < 5; more++) history.add(stats(20, 2000))
    assert.deepEqual(history.of('a', 'live'), [1, 1, 1])
  })
})
