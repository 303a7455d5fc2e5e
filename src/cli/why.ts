// `cuda-mempool why`: why a recorded run needed its memory, or ran out of it.

import { whyText } from '../report/why-text.js'
import { readFiles } from './recording-input.js'
import { print } from './terminal.js'

/** Prints the text for one file; `gpu` is the recorded device as text. */
export async function why(file: string, { gpu }: { readonly gpu?: string }): Promise<void> {
  const [trace] = await readFiles([file], gpu)
  print(style => whyText(trace, style))
}
