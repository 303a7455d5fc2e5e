// `cuda-mempool viewer`: the page without data, as a file to pass on.

import { readFileSync } from 'node:fs'
import { packageFile } from '../../core/base/package-files.js'
import { printable } from '../../core/base/shown-text.js'
import { writeOutput } from '../output-file.js'
import { print } from '../terminal.js'
import { checkPage } from './page-output.js'

/** The options from the command line. */
export interface ViewerArguments {
  readonly output: string
  readonly force?: boolean
}

/** Writes the page, and says what to do with it. */
export async function writeViewer({ output, force = false }: ViewerArguments): Promise<void> {
  checkPage(output, force)
  await writeOutput(output, [readFileSync(packageFile('dist/viewer/viewer.html', 'viewer'))], force)
  print(() => `wrote ${printable(output)}; open it in a browser, and drop recordings on it`)
}
