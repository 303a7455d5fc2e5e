// `cuda-mempool diff`: what grew and shrank between two recorded runs.

import { diffText } from '../report/diff-text.js'
import { readFiles } from './recording-input.js'
import { print } from './terminal.js'

/** Prints the text for two files; `gpu` is the recorded device as text. */
export async function diff(before: string, after: string, { gpu }: { readonly gpu?: string }): Promise<void> {
  const [first, second] = await readFiles([before, after], gpu)
  print(style => diffText(first, second, style))
}
