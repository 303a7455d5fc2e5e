// Finds files of this package that its code opens at run time. A bundler copies the code and leaves these files behind.

import { existsSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { MissingFileError } from './errors.js'
import { packageRoot, runningFile } from './package-root.js'

/** The remedy for a bundle with this package in it. */
export const LEAVE_OUT =
  'leave cuda-mempool out of the bundle (esbuild --external:cuda-mempool, rollup external, webpack externals, ' +
  'Next serverExternalPackages), as docs/bundlers.md shows'

/**
 * The path of a file or folder of this package, such as `cuda/control.ptx`. Throws MissingFileError, with the
 * purpose of the file, if a bundler has left it behind.
 */
export function packageFile(path: string, purpose: string, runs = runningFile()): string {
  // Not new URL(…, import.meta.url): bundlers take the file along then, without what it imports.
  const root = packageRoot(runs)
  const found = root === null ? null : fileURLToPath(new URL(path, root))
  if (found !== null && existsSync(found)) return found
  const place = found === null ? `beside the bundle ${fileURLToPath(runs)}` : `at ${found}`
  throw new MissingFileError(`${purpose} needs ${path} of cuda-mempool, which is missing ${place}; ${LEAVE_OUT}`)
}

/** As `packageFile`, for a file of code: the compiler's if this module is the compiler's, else a bundle. */
export function codeFile(path: string, purpose: string, runs = runningFile()): string {
  return packageFile(`dist/${runs.endsWith('/package-root.js') ? 'src' : 'lib'}/${path}`, purpose, runs)
}

/** The version of this package. Throws MissingFileError in a bundle, which has the code only. */
export function packageVersion(): string {
  return JSON.parse(readFileSync(packageFile('package.json', 'the version'), 'utf8')).version
}
