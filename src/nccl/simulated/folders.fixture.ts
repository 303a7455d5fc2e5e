// The folders of worlds, for tests that find leftovers.

import { readdirSync, readFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

/** The files in each folder whose id a process has made. */
export function foldersOf(pid: number): string[][] {
  const folders = readdirSync(tmpdir()).filter(name => name.startsWith('cuda-mempool-nccl-'))
  return folders.flatMap(name => {
    const folder = join(tmpdir(), name)
    try {
      const mark = JSON.parse(readFileSync(join(folder, 'maker'), 'utf8')) as { readonly pid: number }
      return mark.pid === pid ? [readdirSync(folder)] : []
    } catch {
      return [] // another process has removed it
    }
  })
}
