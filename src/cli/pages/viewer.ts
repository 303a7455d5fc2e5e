// `cuda-mempool viewer`: the page without data, as a file to pass on.

import { readFileSync } from 'node:fs'
import { packageFile } from '../../base/package-files.js'
import { UsageError } from '../exit.js'
import { checkOutput, writeOutput } from '../output-file.js'
import { print } from '../terminal.js'

/** The options from the command line. */
export interface ViewerArguments {
  readonly output: string
  readonly force?: boolean
}

/** Writes the page, and says what to do with it. */
export async function writeViewer({ output, force = false }: ViewerArguments): Promise<void> {
  if (!/\.html?$/i.test(output)) throw new UsageError(`--output: '${output}' does not end in .html`)
  checkOutput(output, force)
  await writeOutput(output, [readFileSync(packageFile('dist/viewer/viewer.html', 'viewer'))], force)
  print(() => `wrote ${output}; open it in a browser, and drop recordings on it`)
}
