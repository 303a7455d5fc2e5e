// Reads the database that `nsys export --type sqlite` writes, with the SQLite that newer versions of Node contain.

import { FormatError } from '../../base/errors.js'
import { shellWord } from '../../base/shell-word.js'
import type { Trace } from '../trace.js'
import type { FormatOptions } from './format-options.js'
import { NSIGHT_TABLE, NsightRows } from './nsight-rows.js'

const MAGIC = 'SQLite format 3\0'

/** The part of `node:sqlite` that is used here; its types are missing from those of Node 20. */
interface Sqlite {
  readonly DatabaseSync: new (
    path: string,
    options: { readOnly: true },
  ) => {
    prepare(sql: string): { all(): Record<string, unknown>[]; iterate(): Iterable<Record<string, unknown>> }
    close(): void
  }
}

/** Whether a file begins as an SQLite database. */
export function isSqlite(start: Buffer): boolean {
  return start.toString('latin1', 0, MAGIC.length) === MAGIC
}

/** The error for a database that cannot be read here, with the command that writes a file which can. */
export function sqliteError(path: string): FormatError {
  const command = `sqlite3 -csv -header ${shellWord(path)} 'SELECT * FROM ${NSIGHT_TABLE} ORDER BY start' > memory.csv`
  return new FormatError(`is an SQLite database, which Node ${process.version} cannot read; run: ${command}`)
}

/** The trace of a database of Nsight Systems. Throws FormatError. */
export function readNsightSqlite(path: string, file: string, options: FormatOptions): Trace {
  const sqlite = process.getBuiltinModule?.('node:sqlite' as 'node:fs') as unknown as Sqlite | undefined
  if (sqlite === undefined) throw sqliteError(path)
  const database = opened(sqlite, path)
  try {
    const names = database
      .prepare(`PRAGMA table_info(${NSIGHT_TABLE})`)
      .all()
      .map(({ name }) => String(name))
    if (names.length === 0) {
      throw new FormatError(`has no table ${NSIGHT_TABLE}; record with nsys profile --cuda-memory-usage=true`)
    }
    const rows = new NsightRows(names)
    // Text, because the numbers of processes are above 2^53.
    const columns = names.map((name, i) => `CAST("${name.replaceAll('"', '""')}" AS TEXT) AS c${i}`)
    let row = 0
    for (const values of database.prepare(`SELECT ${columns} FROM ${NSIGHT_TABLE}`).iterate()) {
      row++
      rows.add(
        names.map((_, i) => String(values[`c${i}`] ?? '')),
        `row ${row} of ${NSIGHT_TABLE}`,
      )
    }
    return rows.trace(file, options)
  } catch (error) {
    throw error instanceof FormatError ? error : damaged(error)
  } finally {
    database.close()
  }
}

function opened({ DatabaseSync }: Sqlite, path: string) {
  try {
    return new DatabaseSync(path, { readOnly: true })
  } catch (error) {
    throw damaged(error)
  }
}

function damaged(error: unknown): FormatError {
  return new FormatError(`the database is damaged (${(error as Error).message})`)
}
