// The names of the call stacks of a recording: the line that made an allocation, and the calls that texts and exports
// show. Each frame is looked at once, and each stack takes one step from the stack of its caller.

import type { CallStacks, Frame } from '../trace.js'
import { frameKinds } from './classify.js'
import { FrameKind, isMachinery, isSite, rankOf } from './frame-kind.js'
import { backwardOperator, plainName } from './native-names.js'

/** A frame with a name that people know, and its kind. */
export interface NamedFrame {
  /** empty for C++ without a line */
  readonly file: string
  /** from 1; 0 if unknown */
  readonly line: number
  readonly name: string
  readonly kind: FrameKind
}

/** The name of a call stack: the line that made its allocations. */
export interface Site {
  /**
   * the innermost line outside of PyTorch, as `file:line function`; else the name of an operator, such as
   * `backward of mm`, or of a group; null without a stack
   */
  readonly site: string | null
  /** the line of PyTorch, or the generated code, that the site called; null for none */
  readonly through: string | null
}

const NO_SITE: Site = { site: null, through: null }

/** The names of stacks of machinery alone. */
const GROUPS: Readonly<Partial<Record<FrameKind, string>>> = {
  [FrameKind.launcher]: "Python's own library",
  [FrameKind.unnamed]: 'C++ without names',
  [FrameKind.engine]: "autograd's thread",
}

/** The frames of a recording by their numbers, as people know them. */
export function namedFrames(frames: readonly Frame[]): NamedFrame[] {
  const kinds = frameKinds(frames)
  return frames.map((frame, i) => namedFrame(frame, kinds[i]))
}

/** A part of a function that torch.compile could not join with the rest. */
const RESUMED = /torch_dynamo_resume_in_(.+?)_at_\d+$/
/** Looked for first: at a long name without this end, the search for the whole would begin again and again. */
const RESUMED_END = /_at_\d+$/

/** The folders of generated files are numbers, or have the name of a person. */
function generatedFile(file: string): string {
  return file.startsWith('<') ? file.replace(/ from .*/s, '') : file.replace(/^.*[/\\]/s, '')
}

function namedFrame({ filename, line, name }: Frame, kind: FrameKind): NamedFrame {
  if (kind === FrameKind.backward) return { file: '', line: 0, name: backwardOperator(name)!, kind }
  if (kind >= FrameKind.pytorch || kind === FrameKind.launcher) {
    const file = kind === FrameKind.generated ? generatedFile(filename) : filename
    return { file, line, name: RESUMED_END.test(name) ? name.replace(RESUMED, '$1') : name, kind }
  }
  const plain = plainName(name).replace(/^at::_ops::(\w+)::\w+$/, 'at::$1')
  return kind === FrameKind.nativeLine
    ? { file: filename, line, name: plain, kind }
    : { file: '', line: 0, name: plain, kind }
}

/** A call as text, `file:line function`; C++ without a line has its name only. */
export function callName({ file, line, name, kind }: NamedFrame): string {
  if (file === '') return name
  const isMade = kind === FrameKind.generated && file !== '<string>'
  return `${isMade ? 'generated code ' : ''}${file}:${line} ${name}`
}

/** The text of a frame that names a stack: that of its group if it is machinery. */
export function siteName(frame: NamedFrame): string {
  return GROUPS[frame.kind] ?? callName(frame)
}

/** By node of a tree of stacks, whose parents come first: the frame that names the stack; -1 for the root. */
export function siteFrames(
  { parent, frame }: Pick<CallStacks, 'parent' | 'frame'>,
  frames: readonly Pick<NamedFrame, 'kind'>[],
): Int32Array {
  const ranks = Uint8Array.from(frames, ({ kind }) => rankOf(kind))
  const found = new Int32Array(parent.length).fill(-1)
  for (let node = 1; node < parent.length; node++) {
    const outer = found[parent[node]]
    const own = frame[node]
    found[node] = outer < 0 || ranks[own] >= ranks[outer] ? own : outer
  }
  return found
}

/** By node: the innermost frame of Python, or backward operator; -1 for none. */
function innerFrames({ parent, frame }: CallStacks, frames: readonly NamedFrame[]): Int32Array {
  const inner = new Int32Array(parent.length).fill(-1)
  for (let node = 1; node < parent.length; node++) {
    inner[node] = frames[frame[node]].kind >= FrameKind.backward ? frame[node] : inner[parent[node]]
  }
  return inner
}

/** The calls of a stack without machinery; of machinery alone, the group that it is in. */
export function shownCalls(calls: readonly NamedFrame[]): readonly NamedFrame[] {
  const shown = calls.filter(({ kind }) => !isMachinery(kind))
  // An operator and the engine's call of it have one name.
  if (shown.length > 0) return shown.filter(({ file, name }, i) => file !== '' || name !== shown[i - 1]?.name)
  if (calls.length === 0) return []
  const most = calls.reduce((best, call) => (rankOf(call.kind) > rankOf(best.kind) ? call : best))
  return [{ file: '', line: 0, name: siteName(most), kind: most.kind }]
}

const known = new WeakMap<CallStacks, CallSites>()

export class CallSites {
  /** by the numbers of the recording */
  readonly frames: readonly NamedFrame[]
  private readonly named: Int32Array
  private readonly inner: Int32Array
  /** by number of a stack, from its first use on */
  private readonly sites: Site[] = []

  private constructor(private readonly stacks: CallStacks) {
    this.frames = namedFrames(stacks.frames)
    this.named = siteFrames(stacks, this.frames)
    this.inner = innerFrames(stacks, this.frames)
  }

  /** The sites of a recording's stacks, which are found once. */
  static of(stacks: CallStacks): CallSites {
    let sites = known.get(stacks)
    if (sites === undefined) {
      sites = new CallSites(stacks)
      known.set(stacks, sites)
    }
    return sites
  }

  /** The site of a stack by its number; without a site for 0. */
  siteOf(stack: number): Site {
    this.sites[stack] ??= this.found(stack)
    return this.sites[stack]
  }

  /** The frame that names a stack; undefined for number 0. */
  frameOf(stack: number): NamedFrame | undefined {
    return this.frames[this.named[this.stacks.node[stack]]]
  }

  /** The calls of a stack without machinery, the innermost first. */
  callsOf(stack: number): readonly NamedFrame[] {
    const { node, parent, frame } = this.stacks
    const calls: NamedFrame[] = []
    for (let at = node[stack]; at > 0; at = parent[at]) calls.push(this.frames[frame[at]])
    return shownCalls(calls)
  }

  private found(stack: number): Site {
    const node = this.stacks.node[stack]
    const named = this.frames[this.named[node]]
    if (named === undefined) return NO_SITE
    const inner = this.frames[this.inner[node]]
    const isThrough = isSite(named.kind) && inner !== named
    return { site: siteName(named), through: isThrough ? siteName(inner) : null }
  }
}
