// Documents and their programs: reads code blocks, and runs programs on the simulated device.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

export const ROOT = fileURLToPath(new URL('../..', import.meta.url))
/** The folder of sockets, apart from those of other programs of this user. */
const SOCKETS = mkdtempSync(join(tmpdir(), 'cuda-mempool-sockets-'))
process.on('exit', () => rmSync(SOCKETS, { recursive: true }))
export const ENV = {
  PATH: process.env['PATH'],
  XDG_RUNTIME_DIR: SOCKETS,
  CUDA_MEMPOOL_DEVICE: 'simulated',
  CUDA_VISIBLE_DEVICES: '-1',
}

export const read = (path: string) => readFileSync(join(ROOT, path), 'utf8')

/** The code blocks of a language in a document. */
export function blocks(document: string, language: string): string[] {
  return [...document.matchAll(new RegExp(`^\`\`\`${language}\n(.*?)^\`\`\`$`, 'gms'))].map(match => match[1])
}

/** Runs Node to its end and returns what it printed; a failure shows everything. */
export function node(...args: string[]): string {
  const { status, stdout, stderr } = spawnSync(process.execPath, args, { cwd: ROOT, encoding: 'utf8', env: ENV })
  assert.deepEqual([status, stderr], [0, ''], `node ${args.join(' ')}\n${stdout}${stderr}`)
  return stdout
}

/** Runs programs one after another in one process, which loads the package once; returns what each printed. */
export function runAll(paths: readonly string[], ...flags: string[]): string[] {
  // A file, as a thread of a program cannot inherit --eval.
  return node(...flags, fileURLToPath(new URL('documents.worker.js', import.meta.url)), ...paths)
    .split('\0\n')
    .slice(1)
}
