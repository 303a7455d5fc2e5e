// The kinds of the frames of a recording.

import type { Frame } from '../trace.js'
import { FrameKind } from './frame-kind.js'
import { isNative, nativeKind } from './native-kind.js'
import { evidenceOf, pythonKind } from './python-kind.js'

/** Letters of a path that are looked at, from its end: twice those that Linux allows. */
const MOST_LETTERS = 8192

/** The kinds of the frames of a recording. Some frames tell where PyTorch is, or how the program was started. */
export function frameKinds(frames: readonly Frame[]): FrameKind[] {
  const paths = frames.map(({ filename }) => filename.slice(-MOST_LETTERS).replaceAll('\\', '/'))
  const evidence = evidenceOf(
    paths,
    frames.map(({ name }) => name),
  )
  return frames.map(({ line, name }, i) => {
    const path = paths[i]
    return FrameKind[isNative(path, name) ? nativeKind(path, line, name) : pythonKind(path, name, evidence)]
  })
}
