// The program of a thread as one file. A thread loads every module anew, and 280 modules take longer to load than most
// of these threads run. One file takes a third of that time. The thread that starts them runs the modules.

import { mkdtempSync, rmSync } from 'node:fs'
import { basename, join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { buildSync } from 'esbuild'

/** Inside the package, so that its dependencies are found. */
const folder = mkdtempSync(fileURLToPath(new URL('threads-', import.meta.url)))
process.on('exit', () => rmSync(folder, { recursive: true }))

/** The address of a bundle of a worker's module and all that it imports. It is gone with the process. */
export function threadProgram(module: URL): URL {
  const path = fileURLToPath(module)
  const outfile = join(folder, basename(path))
  const options = { bundle: true, platform: 'node', format: 'esm', packages: 'external', keepNames: true } as const
  buildSync({ ...options, entryPoints: [path], outfile })
  return pathToFileURL(outfile)
}
