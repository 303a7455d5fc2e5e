// Pairs the call sites of two recordings, and their stacks. A site is a file and a function, since lines move with each
// change above them.

import type { NamedFrame } from '../frames/call-sites.js'
import { isMachinery, isSite } from '../frames/frame-kind.js'
import { groupedBy } from '../groups.js'
import { PathNumbers } from './path-numbers.js'
import type { StackAtPeak } from './peak-stacks.js'

/** The stacks of one site in the first recording, and in the second; one of the lists may be empty. */
type SitePair = readonly [before: StackAtPeak[], after: StackAtPeak[]]

/** Numbers of the paths of both recordings: by files and functions, and by functions alone. */
export class PathKeys {
  readonly calls = new PathNumbers<NamedFrame>(functionText)
  readonly names = new PathNumbers<NamedFrame>(({ name }) => name)
  private readonly inBoth: ReadonlySet<NamedFrame>

  constructor(before: readonly StackAtPeak[], after: readonly StackAtPeak[]) {
    const [left, right] = [framesOf(before), framesOf(after)]
    const [inLeft, inRight] = [left, right].map(frames => new Set([...frames].map(functionText)))
    const isInBoth = (frame: NamedFrame) => inLeft.has(functionText(frame)) && inRight.has(functionText(frame))
    this.inBoth = new Set([...left, ...right].filter(isInBoth))
  }

  /** The size of a stack with its calls that both recordings have; null without a line outside of PyTorch in them. */
  sharedOf({ calls, bytes, blocks }: StackAtPeak): string | null {
    const shared = calls.filter(call => this.inBoth.has(call))
    return shared.some(({ kind }) => isSite(kind)) ? `${bytes} ${blocks} ${this.calls.of(shared)}` : null
  }
}

function functionText({ file, name }: NamedFrame): string {
  return `${file}\n${name}`
}

function framesOf(held: readonly StackAtPeak[]): Set<NamedFrame> {
  const frames = new Set<NamedFrame>()
  for (const { calls } of held) for (const call of calls) frames.add(call)
  return frames
}

/** The sites of two recordings, each once. */
export function pairedSites(before: readonly StackAtPeak[], after: readonly StackAtPeak[], keys: PathKeys): SitePair[] {
  const [inBoth, ...alone] = paired(before, after, functionOf)
  // A file may have moved, or been renamed. The rest is compared by its name, then by the functions on the stack.
  const [moved, ...others] = paired(...alone, held => functionOf(held).replace(/^.*[/\\]/, ''))
  const [renamed, ...rest] = paired(...others, held => keys.names.of(held.calls) || functionOf(held))
  const [wrapped, gone, come] = wrappedStacks(...rest, keys)
  const single = (held: readonly StackAtPeak[]) => [...groupedBy(held, functionOf).values()]
  const sites = [...inBoth, ...moved, ...renamed, ...onOneSide(single(gone), single(come))]
  return [...sites.flatMap(byLine), ...wrappedSites(wrapped)]
}

/** The stacks of equal size that agree without new and gone functions, such as decorators, and the rest. */
function wrappedStacks(before: readonly StackAtPeak[], after: readonly StackAtPeak[], keys: PathKeys) {
  return paired(before, after, held => keys.sharedOf(held))
}

/** A decorator may be around several functions, and is one site then. */
function wrappedSites(stacks: readonly SitePair[]): SitePair[] {
  const sites = groupedBy(stacks, ([, after]) => functionOf(after[0]))
  return [...sites.values()].map(pairs => [pairs.flatMap(([before]) => before), pairs.flatMap(([, after]) => after)])
}

/** The stacks of a site, each once: by all calls, those within the site, their functions, and `sharedOf`. */
export function pairedStacks([before, after]: SitePair, keys: PathKeys): SitePair[] {
  const within = ({ calls, named }: StackAtPeak) => calls.slice(0, calls.indexOf(named!) + 1)
  const [same, ...others] = paired(before, after, ({ calls }) => keys.calls.of(calls))
  const [alike, ...unlike] = paired(...others, held => keys.calls.of(within(held)))
  const [renamed, ...rest] = paired(...unlike, held => keys.names.of(within(held)))
  const [wrapped, gone, come] = wrappedStacks(...rest, keys)
  const single = (held: readonly StackAtPeak[]) => [...groupedBy(held, ({ calls }) => keys.calls.of(calls)).values()]
  return [...same, ...alike, ...renamed, ...wrapped, ...onOneSide(single(gone), single(come))]
}

/** The sites, or stacks, that only one of the recordings has. */
function onOneSide(gone: readonly StackAtPeak[][], come: readonly StackAtPeak[][]): SitePair[] {
  return [...gone.map((held): SitePair => [held, []]), ...come.map((held): SitePair => [[], held])]
}

/**
 * Lines of one function are sites of their own. If one of the first recording is gone, lines have moved. Then equal
 * amounts tell more than equal lines, and the order tells the rest.
 */
function byLine([before, after]: SitePair): SitePair[] {
  const [lines, others] = [linesOf(before), linesOf(after)]
  const kept = new Set(others.map(placeOf))
  const keys = lines.every(line => kept.has(placeOf(line)))
    ? [placeOf]
    : [(line: Line) => `${placeOf(line)} ${amountOf(line)}`, amountOf, placeOf]
  const pairs: SitePair[] = []
  let [gone, come] = [lines, others]
  for (const key of keys) [gone, come] = pairsBy(key, gone, come, pairs)
  const count = Math.max(gone.length, come.length)
  return [...pairs, ...Array.from({ length: count }, (_, i): SitePair => [gone[i] ?? [], come[i] ?? []])]
}

/** The stacks of one line of the program. */
type Line = StackAtPeak[]

function placeOf([{ named }]: Line): string {
  return `${named?.file}:${named?.line}`
}

function amountOf(line: Line): string {
  return line.reduce((sum, { bytes }) => sum + bytes, 0) + ' ' + line.reduce((sum, { blocks }) => sum + blocks, 0)
}

/** The lines in rising order. */
function linesOf(held: readonly StackAtPeak[]): Line[] {
  const lines = groupedBy(held, ({ named }) => named?.line ?? 0)
  return [...lines].sort(([a], [b]) => Number(a) - Number(b)).map(([, line]) => line)
}

/** Adds the pairs with equal keys to `pairs`, each line once, and returns what has no partner. */
function pairsBy(keyOf: KeyOf<Line>, before: Line[], after: Line[], pairs: SitePair[]): [Line[], Line[]] {
  const waiting = groupedBy(before, keyOf)
  const come = after.filter(line => {
    const partner = waiting.get(keyOf(line))?.shift()
    if (partner !== undefined) pairs.push([partner, line])
    return partner === undefined
  })
  const left = new Set([...waiting.values()].flat())
  return [before.filter(line => left.has(line)), come]
}

/** Null has no partner. */
type Key = string | number | null
type KeyOf<Each = StackAtPeak> = (each: Each) => Key

/** The pairs that agree in a key, and what is left of both sides. */
function paired(
  before: readonly StackAtPeak[],
  after: readonly StackAtPeak[],
  keyOf: KeyOf,
): [pairs: SitePair[], before: StackAtPeak[], after: StackAtPeak[]] {
  const [left, right] = [groupedBy(before, keyOf), groupedBy(after, keyOf)]
  const pairs = [...left].flatMap(([key, held]): SitePair[] =>
    key !== null && right.has(key) ? [[held, right.get(key)!]] : [],
  )
  const rest = (own: Map<Key, StackAtPeak[]>, other: Map<Key, unknown>) =>
    [...own].flatMap(([key, held]) => (key !== null && other.has(key) ? [] : held))
  return [pairs, rest(left, right), rest(right, left)]
}

/** The file and the function of a site; a name without a file as it is. */
function functionOf({ named, site, before }: StackAtPeak): string {
  if (named === undefined) return before ? 'before' : ''
  if (named.file === '' || isMachinery(named.kind)) return site.site ?? ''
  return `${named.file}\n${named.name}`
}
