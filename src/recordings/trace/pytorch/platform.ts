// The operating system of a recorded program, by the paths in its call stacks.

import type { Trace } from '../trace.js'

/** Paths of Windows begin with a drive, or have backslashes before PyTorch's folder. */
const OF_WINDOWS = /^[A-Za-z]:[\\/]|\\torch\\/

/** 'Windows' if a file of the call stacks has a path of Windows; null for other systems, and without call stacks. */
export function platformOf({ stacks }: Pick<Trace, 'stacks'>): 'Windows' | null {
  return stacks.frames.some(({ filename }) => OF_WINDOWS.test(filename)) ? 'Windows' : null
}
