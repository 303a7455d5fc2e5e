// Databases whose table is not what it seems, or not all in one file. They are made by the SQLite of Node.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { copyFileSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, describe, test } from 'node:test'
import { csvCommand } from './nsight-sqlite.js'
import { readRecording } from './read-recording.js'

interface Database {
  exec(sql: string): void
  close(): void
}

const sqlite = process.getBuiltinModule('node:sqlite' as 'node:fs') as unknown as
  | { DatabaseSync: new (path: string) => Database }
  | undefined
const folder = mkdtempSync(join(tmpdir(), 'cuda-mempool-sqlite-'))
after(() => rmSync(folder, { recursive: true }))

const TABLE = 'CUDA_GPU_MEMORY_USAGE_EVENTS'
const COLUMNS = 'start INT, address INT, bytes INT, memKind INT, memoryOperationType INT'
const TWO_ROWS = `INSERT INTO ${TABLE} (start, address, bytes, memKind, memoryOperationType)
  VALUES (1, 4096, 512, 2, 0), (2, 8192, 512, 2, 0);`
const PAGE = 4096
const ENDLESS = 'WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)'

/** Makes a database; `last` is called before it is closed. */
function made(name: string, sql: string, last = () => {}): string {
  const path = join(folder, name)
  const database = new sqlite!.DatabaseSync(path)
  database.exec(sql)
  last()
  database.close()
  return path
}

const refused = (path: string, message: RegExp) =>
  assert.throws(() => readRecording(path), { name: 'FormatError', message })

describe('a database', { skip: sqlite === undefined && 'this Node has no node:sqlite' }, () => {
  test('is refused if the table is a query, of which none runs', () => {
    const none = /CUDA_GPU_MEMORY_USAGE_EVENTS is no ordinary table, as nsys export --type sqlite writes it$/
    const row = 'x AS start, x AS address, 8 AS bytes, 2 AS memKind, 0 AS memoryOperationType'
    refused(made('endless', `CREATE VIEW ${TABLE} AS ${ENDLESS} SELECT ${row} FROM n`), none)
    refused(made('empty', `CREATE VIEW ${TABLE} AS ${ENDLESS} SELECT ${row} FROM n WHERE x < 0`), none)
    refused(made('large', `CREATE VIEW ${TABLE} AS SELECT ${row.replaceAll('x', 'hex(zeroblob(3e8))')}`), none)
    const generated = COLUMNS.replace('bytes INT', 'bytes INT AS (length(hex(zeroblob(3e8))))')
    refused(made('generated', `CREATE TABLE ${TABLE} (${generated})`), none)
    refused(made('virtual', `CREATE VIRTUAL TABLE ${TABLE} USING rtree(start, address, bytes)`), none)
    refused(made('without', 'CREATE TABLE other (x)'), /has no table CUDA_GPU_MEMORY_USAGE_EVENTS; record with nsys/)
  })

  test('may have views, triggers, and columns that are not read', () => {
    const path = made(
      'others',
      `CREATE TABLE "${TABLE}" (${COLUMNS}, note, more AS (length(hex(zeroblob(3e8))))); ${TWO_ROWS}
      CREATE VIEW endless AS ${ENDLESS} SELECT * FROM n;
      CREATE TRIGGER each AFTER INSERT ON ${TABLE} BEGIN SELECT 1; END;
      UPDATE ${TABLE} SET note = zeroblob(1000000)`,
    )
    assert.equal(readRecording(path).allocations, 2)
  })

  test('is refused at a text in place of a number, of any length', () => {
    const path = made(
      'long',
      `CREATE TABLE ${TABLE} (${COLUMNS}); ${TWO_ROWS} UPDATE ${TABLE} SET bytes = zeroblob(1e6)`,
    )
    refused(path, /row 1 of CUDA_GPU_MEMORY_USAGE_EVENTS: bytes must be a whole number, not 'a long value'$/)
  })

  test('is read without files beside it, also where its writer used a log', () => {
    const path = made('logged #1?.sqlite', `PRAGMA journal_mode = WAL; CREATE TABLE ${TABLE} (${COLUMNS}); ${TWO_ROWS}`)
    assert.equal(readRecording(path).allocations, 2)
    assert.deepEqual(
      readdirSync(folder).filter(name => name.startsWith('logged')),
      ['logged #1?.sqlite'],
    )
  })

  test('is refused while a part of it is in a log or a journal', () => {
    const copied = (name: string, from: string, beside: string) => {
      const path = join(folder, name)
      copyFileSync(join(folder, from), path)
      copyFileSync(join(folder, `${from}${beside}`), `${path}${beside}`)
      return path
    }
    const table = `CREATE TABLE ${TABLE} (${COLUMNS});`
    made('log', `PRAGMA journal_mode = WAL; ${table} ${TWO_ROWS}`, () => copied('in log', 'log', '-wal'))
    refused(
      join(folder, 'in log'),
      /is not complete without .*in log-wal; end the program that writes it, and run: sqlite3/,
    )
    made(
      'journal',
      `${table} PRAGMA cache_spill = 1; PRAGMA cache_size = 1; BEGIN; ${TWO_ROWS}
      INSERT INTO ${TABLE} ${ENDLESS} SELECT x, x, x, 2, 0 FROM n LIMIT 10000`,
      () => copied('in journal', 'journal', '-journal'),
    )
    refused(join(folder, 'in journal'), /is not complete without .*in journal-journal;/)
  })

  test('is refused if its pages lie within themselves', () => {
    const path = made(
      'cycle',
      `PRAGMA page_size = ${PAGE}; CREATE TABLE ${TABLE} (${COLUMNS});
      INSERT INTO ${TABLE} ${ENDLESS} SELECT x, x, x, 2, 0 FROM n LIMIT 20000`,
    )
    // The root is page 2: a header of 12 bytes, then the places of cells, which begin with the number of a page.
    const bytes = readFileSync(path).subarray(0, 3 * PAGE)
    const root = bytes.subarray(PAGE, 2 * PAGE)
    const cells = Array.from({ length: root.readUInt16BE(3) }, (_, cell) => root.readUInt16BE(12 + 2 * cell))
    for (const cell of cells) root.writeUInt32BE(3, cell)
    root.writeUInt32BE(3, 8)
    bytes.writeUInt32BE(3, 28)
    writeFileSync(path, bytes)
    refused(path, /has more rows than a file of this size holds$/)
  })

  test('is read without a line about an experiment', () => {
    const path = made('quiet', `CREATE TABLE ${TABLE} (${COLUMNS}); ${TWO_ROWS}`)
    const reader = `
      import { readRecording } from ${JSON.stringify(new URL('./read-recording.js', import.meta.url).href)}
      console.log(readRecording(${JSON.stringify(path)}).events)`
    const { stdout, stderr } = spawnSync(process.execPath, ['--input-type=module', '-e', reader])
    assert.deepEqual([String(stdout), String(stderr)], ['2\n', ''])
  })
})

const hasProgram = spawnSync('sqlite3', ['-version']).status === 0

describe('the command that writes the table as CSV', {
  skip: !hasProgram && 'there is no program sqlite3',
}, () => {
  const written = (name: string, sql: string) => {
    assert.equal(spawnSync('sqlite3', [join(folder, name), sql]).status, 0)
    return spawnSync('sh', ['-c', csvCommand(name)], { cwd: folder, timeout: 60_000, encoding: 'utf8' })
  }

  test('writes a file that is read', () => {
    assert.equal(written('by program.sqlite', `CREATE TABLE ${TABLE} (${COLUMNS}); ${TWO_ROWS}`).status, 0)
    assert.equal(readRecording(join(folder, 'memory.csv')).allocations, 2)
  })

  test('runs no query that is in the place of the table', () => {
    const row = 'x AS start, x AS address, 8 AS bytes, 2 AS memKind, 0 AS memoryOperationType'
    for (const [name, sql, error] of [
      ['view.sqlite', `CREATE VIEW ${TABLE} AS ${ENDLESS} SELECT ${row} FROM n`, /on view/],
      ['rtree.sqlite', `CREATE VIRTUAL TABLE ${TABLE} USING rtree(start, address, bytes)`, /virtual/],
    ] as const) {
      const { status, signal, stderr } = written(name, sql)
      assert.deepEqual([signal, status !== 0], [null, true])
      assert.match(stderr, error)
      assert.equal(readFileSync(join(folder, 'memory.csv'), 'utf8'), '')
    }
  })
})
