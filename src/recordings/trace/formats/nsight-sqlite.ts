// Reads the database that `nsys export --type sqlite` writes, with the SQLite that newer versions of Node contain. A
// database of a stranger may have queries of its own in place of a table: views, generated columns, virtual tables.
// They may run for ever, so only an ordinary table is read.

import { closeSync, openSync, readSync, realpathSync, statSync } from 'node:fs'
import { pathToFileURL } from 'node:url'
import { FormatError } from '../../../core/base/errors.js'
import type { Trace } from '../trace.js'
import type { DeviceChoice } from './format-options.js'
import { NSIGHT_COLUMNS, NSIGHT_TABLE, NsightRows } from './nsight-rows.js'
import { shellWord } from './shell-word.js'

/** On Windows already the status of a pipe opens it. */
const PIPE_OF_WINDOWS = /^[\\/]{2}[.?][\\/]pipe[\\/]/i
const MAGIC = 'SQLite format 3\0'
/** The text that makes an ordinary table of that name, as SQLite stores it. */
const PLAIN_TABLE = new RegExp(`^CREATE TABLE ["'\`[]?${NSIGHT_TABLE}["'\`\\]]?\\s*\\(`, 'i')
const LONGEST_VALUE = 40
/** A row takes more. A damaged database may have pages that lie within themselves, and rows without end. */
const LEAST_BYTES_A_ROW = 16
const LONGEST_MESSAGE = 200

/** The part of `node:sqlite` that is used here; its types are missing from those of Node 20. */
interface Sqlite {
  readonly DatabaseSync: new (path: URL, options: { readOnly: true }) => Database
}

interface Database {
  exec(sql: string): void
  prepare(sql: string): { all(): Record<string, unknown>[]; iterate(): Iterable<Record<string, unknown>> }
  close(): void
}

/** The first bytes of a file; none of a pipe, which can be opened only once, and of a file that cannot be read. */
export function startOf(path: string): Buffer {
  const start = Buffer.alloc(MAGIC.length)
  let file: number | undefined
  try {
    if (PIPE_OF_WINDOWS.test(path) || !statSync(path).isFile()) return Buffer.alloc(0)
    file = openSync(path, 'r')
    return start.subarray(0, readSync(file, start, 0, start.length, 0))
  } catch {
    // The reader of the whole file says why.
    return Buffer.alloc(0)
  } finally {
    if (file !== undefined) closeSync(file)
  }
}

/** Whether a file begins as an SQLite database. */
export function isSqlite(start: Buffer): boolean {
  return start.toString('latin1', 0, MAGIC.length) === MAGIC
}

/** The error for a database that cannot be read here, with the command that writes a file which can. */
function sqliteError(path: string): FormatError {
  return new FormatError(`is an SQLite database, which Node ${process.version} cannot read; run: ${csvCommand(path)}`)
}

/**
 * The command that writes the table of a database as CSV. Only an ordinary table can have such a trigger. So a view or
 * a virtual table is refused before it runs, and -bail stops there. The trigger is never stored.
 */
export function csvCommand(path: string): string {
  const trigger = `CREATE TEMP TRIGGER plain AFTER INSERT ON ${NSIGHT_TABLE} BEGIN SELECT 1; END`
  const sql = `${trigger}; SELECT * FROM ${NSIGHT_TABLE} ORDER BY start`
  return `sqlite3 -bail -readonly -csv -header ${shellWord(path)} ${shellWord(sql)} > memory.csv`
}

/** The traces of the chosen devices in a database of Nsight Systems; `file` is their name. Throws FormatError. */
export function readNsightSqlite(path: string, file: string, device: DeviceChoice): Trace[] {
  const database = opened(path)
  try {
    database.exec('PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON')
    const names = columnsOf(database)
    const rows = new NsightRows(names)
    const most = statSync(path).size / LEAST_BYTES_A_ROW
    let row = 0
    for (const values of database.prepare(selectionOf(names)).iterate()) {
      if (++row > most) throw new FormatError(`${NSIGHT_TABLE} has more rows than a file of this size holds`)
      rows.add(
        names.map(name => String(values[name] ?? '')),
        `row ${row} of ${NSIGHT_TABLE}`,
      )
    }
    return rows.traces(file, device)
  } catch (error) {
    throw formatError(error)
  } finally {
    database.close()
  }
}

/** SQLite without the two lines that Node 22 prints about its being new. */
function sqliteOf(): Sqlite | undefined {
  const { emitWarning } = process
  process.emitWarning = () => {}
  try {
    return process.getBuiltinModule?.('node:sqlite' as 'node:fs') as unknown as Sqlite | undefined
  } finally {
    process.emitWarning = emitWarning
  }
}

/** The database, opened so that SQLite writes no file beside it. */
function opened(path: string): Database {
  const sqlite = sqliteOf()
  if (sqlite === undefined) throw sqliteError(path)
  const url = pathToFileURL(path)
  url.search = 'immutable=1'
  try {
    checkComplete(path)
    return new sqlite.DatabaseSync(url, { readOnly: true })
  } catch (error) {
    // Node before 22.15 takes no URL.
    throw error instanceof TypeError ? sqliteError(path) : formatError(error)
  }
}

/** Throws FormatError if files beside the database hold a part of it: a program writes it, or was ended. */
function checkComplete(path: string): void {
  const real = realpathSync(path)
  // The journal of a completed change may stay, with zeros at its start.
  const part = [`${real}-wal`, `${real}-journal`].find(beside => (startOf(beside)[0] ?? 0) !== 0)
  if (part === undefined) return
  const command = `sqlite3 ${shellWord(real)} ${shellWord('SELECT count(*) FROM sqlite_schema')}`
  throw new FormatError(`is not complete without ${part}; end the program that writes it, and run: ${command}`)
}

/** The known columns of the table. Throws FormatError unless it is an ordinary table with all values in the file. */
function columnsOf(database: Database): string[] {
  const found = database
    .prepare(`SELECT type, substr(sql, 1, 80) AS sql FROM sqlite_schema WHERE name = '${NSIGHT_TABLE}' LIMIT 2`)
    .all()
  if (found.length === 0) {
    throw new FormatError(`has no table ${NSIGHT_TABLE}; record with nsys profile --cuda-memory-usage=true`)
  }
  const columns = database
    .prepare(`PRAGMA table_xinfo(${NSIGHT_TABLE})`)
    .all()
    .filter(({ name }) => (NSIGHT_COLUMNS as readonly unknown[]).includes(name))
  const isPlain = found.length === 1 && found[0]['type'] === 'table' && PLAIN_TABLE.test(String(found[0]['sql']))
  if (!isPlain || columns.some(({ hidden }) => hidden !== 0)) {
    throw new FormatError(`${NSIGHT_TABLE} is no ordinary table, as nsys export --type sqlite writes it`)
  }
  return columns.map(({ name }) => String(name))
}

/** Values as text, because the numbers of processes are above 2^53. Of a long value not even its bytes are read. */
function selectionOf(names: readonly string[]): string {
  const values = names.map(
    name => `iif(octet_length("${name}") > ${LONGEST_VALUE}, 'a long value', CAST("${name}" AS TEXT)) AS "${name}"`,
  )
  return `SELECT ${values} FROM ${NSIGHT_TABLE}`
}

function formatError(error: unknown): FormatError {
  if (error instanceof FormatError) return error
  const [message] = (error as Error).message.split('\n')
  return new FormatError(`the database is damaged (${message.slice(0, LONGEST_MESSAGE)})`)
}
