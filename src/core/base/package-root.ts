// The folder of this package, as the running code sees it.

import { pathToFileURL } from 'node:url'

/** The file with this module, seen from the root of the package: the compiler's, or a bundle of the package. */
const RUNNING = /\/dist\/(?:src\/core\/base\/package-root|lib\/core-base)\.js$/

/** The URL of the running file: this module, or a bundle that contains it. A CommonJS bundle has no import.meta. */
export function runningFile(): string {
  return import.meta.url ?? pathToFileURL(__filename).href
}

/** The URL of the package's root, with a slash at its end; null in the bundle of a program. */
export function packageRoot(runs = runningFile()): string | null {
  const file = RUNNING.exec(runs)
  return file === null ? null : runs.slice(0, file.index + 1)
}
