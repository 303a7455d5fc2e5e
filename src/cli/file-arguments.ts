// Arguments that name files. Shells of Windows leave wildcards to the programs.

import { readdirSync } from 'node:fs'
import { basename, dirname } from 'node:path'
import { InvalidArgumentError } from 'commander'

/** Parses an argument or option that names a file. */
export function fileName(value: string): string {
  if (value === '') throw new InvalidArgumentError('The file name is empty.')
  return value
}

/** Parses and collects an argument that names several files. */
export function fileNames(
  value: string,
  before: readonly string[] = [],
  platform: string = process.platform,
): string[] {
  return [...before, ...(platform === 'win32' ? matching(fileName(value)) : [fileName(value)])]
}

/** The files that a path with wildcards in its last part means, or the path itself if there are none. */
function matching(path: string): string[] {
  const pattern = basename(path)
  if (!/[*?]/.test(pattern)) return [path]
  const text = pattern
    .replace(/[^*?\w]/g, '\\$&')
    .replaceAll('?', '.')
    .replace(/\*+/g, '.*')
  const names = namesIn(dirname(path)).filter(name => new RegExp(`^${text}$`, 'i').test(name))
  if (names.length === 0) return [path]
  return names.sort().map(name => path.slice(0, -pattern.length) + name)
}

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder)
  } catch {
    return [] // the error of reading the file says why
  }
}
