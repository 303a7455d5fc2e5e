// The operating system of a recorded program, by its call stacks.

import type { Frame, Trace } from '../trace.js'

/** Paths of Windows begin with a drive or a network's name, or have backslashes before PyTorch's folder. */
const OF_WINDOWS = /^([a-z]:[\\/]|\\\\|.*\\torch\\)/i
/** The files of WSL, which is Linux, as Windows names them. */
const OF_WSL = /^\\\\wsl/i
/** The functions of Windows that begin a thread. */
const BEGINS_THREAD = /\b(BaseThreadInitThunk|RtlUserThreadStart)\b/

/** 'Windows' if call stacks have a path or a function of Windows; null for other systems, and without call stacks. */
export function platformOf({ stacks }: Pick<Trace, 'stacks'>): 'Windows' | null {
  // C++ files have the paths of the machine that compiled them.
  const isOther = ({ filename }: Frame) => filename.startsWith('/') && filename.endsWith('.py')
  return stacks.frames.some(isOfWindows) && !stacks.frames.some(isOther) ? 'Windows' : null
}

function isOfWindows({ filename, name }: Frame): boolean {
  if (BEGINS_THREAD.test(name)) return true
  if (OF_WSL.test(filename)) return false
  return OF_WINDOWS.test(filename) || (filename.endsWith('.py') && filename.includes('\\') && !filename.includes('/'))
}
