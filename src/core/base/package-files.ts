// Finds files of this package that its code opens at run time. A bundler copies the code and leaves these files behind.

import { existsSync } from 'node:fs'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { MissingFileError } from './errors.js'

/** The file with this module, seen from the root of the package. */
const COMPILED = '/dist/src/core/base/package-files.js'
/** The same in the bundles of the package (`bundle/bundle.ts`). */
const BUNDLED = /\/dist\/lib\/cuda-mempool-[A-Z0-9]{8}\.js$/

/** The remedy for a bundle with this package in it. */
export const LEAVE_OUT =
  'leave cuda-mempool out of the bundle (esbuild --external:cuda-mempool, rollup external, webpack externals, ' +
  'Next serverExternalPackages), as docs/bundlers.md shows'

/** The URL of the running file: this module, or a bundle that contains it. A CommonJS bundle has no import.meta. */
export function runningFile(): string {
  return import.meta.url ?? pathToFileURL(__filename).href
}

/** The URL of the package's root, with a slash at its end; null in the bundle of a program. */
export function packageRoot(runs = runningFile()): string | null {
  if (runs.endsWith(COMPILED)) return runs.slice(0, 1 - COMPILED.length)
  const bundle = BUNDLED.exec(runs)
  return bundle === null ? null : runs.slice(0, bundle.index + 1)
}

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
  return packageFile(`dist/${runs.endsWith(COMPILED) ? 'src' : 'lib'}/${path}`, purpose, runs)
}
