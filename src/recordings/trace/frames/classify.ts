// The kinds of the frames of a recording.

import type { Frame } from '../trace.js'
import { FrameKind } from './frame-kind.js'
import { isNative, nativeKind } from './native-kind.js'
import { isCommandBody, pythonKind } from './python-kind.js'
import { pytorchRoot } from './pytorch-files.js'

/** Letters of a path that are looked at, from its end: twice those that Linux allows. */
const MOST_LETTERS = 8192

/** The kinds of the frames of a recording. Some frames tell where PyTorch is, or how the program was started. */
export function frameKinds(frames: readonly Frame[]): FrameKind[] {
  const paths = frames.map(({ filename }) => filename.slice(-MOST_LETTERS).replaceAll('\\', '/'))
  const roots = new Set(paths.map(pytorchRoot).filter(root => root !== null))
  const isCommand = frames.some(({ name }, i) => isCommandBody(paths[i], name))
  return frames.map(({ line, name }, i) => {
    const path = paths[i]
    return FrameKind[isNative(path, name) ? nativeKind(path, line, name) : pythonKind(path, name, { roots, isCommand })]
  })
}
