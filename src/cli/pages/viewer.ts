// `cuda-mempool viewer`: the page without data, as a file to pass on.

import { readFileSync } from 'node:fs'
import { packageFile } from '../../core/base/package-files.js'
import { printable } from '../../core/base/shown-text.js'
import { written } from '../answers.js'
import { writeOutput } from '../output-file.js'
import { print, printJson } from '../terminal.js'
import { checkPage } from './page-output.js'

/** The options from the command line. */
export interface ViewerArguments {
  readonly output: string
  readonly force?: boolean
  readonly json?: boolean
}

/** Writes the page, and says what to do with it. */
export async function writeViewer({ output, force = false, json }: ViewerArguments): Promise<void> {
  checkPage(output, force)
  await writeOutput(output, [readFileSync(packageFile('dist/viewer/viewer.html', 'viewer'))], force)
  if (json) printJson(written(output, 'html', []))
  else print(() => `wrote ${printable(output)}; open it in a browser, and drop recordings on it`)
}
