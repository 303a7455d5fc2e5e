// Pairs the call sites of two recordings, and their stacks. A site is a file and a function, since lines move with each
// change above them.

import type { NamedFrame } from '../frames/call-sites.js'
import { isMachinery } from '../frames/frame-kind.js'
import { PathNumbers } from './path-numbers.js'
import type { StackAtPeak } from './peak-stacks.js'

/** The stacks of one site in the first recording, and in the second; one of the lists may be empty. */
export type SitePair = readonly [before: StackAtPeak[], after: StackAtPeak[]]

/** Numbers of the paths of both recordings: by files and functions, and by functions alone. */
export class PathKeys {
  readonly calls = new PathNumbers<NamedFrame>(({ file, name }) => `${file}\n${name}`)
  readonly names = new PathNumbers<NamedFrame>(({ name }) => name)
}

/** The sites of two recordings, each once. */
export function pairedSites(before: readonly StackAtPeak[], after: readonly StackAtPeak[], keys: PathKeys): SitePair[] {
  const [inBoth, ...alone] = paired(before, after, functionOf)
  // A file may have moved, or been renamed. The rest is compared by its name, then by the functions on the stack.
  const [moved, ...others] = paired(...alone, held => functionOf(held).replace(/^.*[/\\]/, ''))
  const [renamed, gone, come] = paired(...others, ({ calls }) => keys.names.of(calls))
  const single = (held: readonly StackAtPeak[]) => [...groupedBy(held, functionOf).values()]
  return [...[...inBoth, ...moved].flatMap(byLine), ...renamed, ...onOneSide(single(gone), single(come))]
}

/** The stacks of a site, each once: by all calls, then by those within the site, then by the functions of these. */
export function pairedStacks([before, after]: SitePair, keys: PathKeys): SitePair[] {
  const within = ({ calls, named }: StackAtPeak) => calls.slice(0, calls.indexOf(named!) + 1)
  const [same, ...others] = paired(before, after, ({ calls }) => keys.calls.of(calls))
  const [alike, ...rest] = paired(...others, held => keys.calls.of(within(held)))
  const [renamed, gone, come] = paired(...rest, held => keys.names.of(within(held)))
  const single = (held: readonly StackAtPeak[]) => [...groupedBy(held, ({ calls }) => keys.calls.of(calls)).values()]
  return [...same, ...alike, ...renamed, ...onOneSide(single(gone), single(come))]
}

/** The sites, or stacks, that only one of the recordings has. */
function onOneSide(gone: readonly StackAtPeak[][], come: readonly StackAtPeak[][]): SitePair[] {
  return [...gone.map((held): SitePair => [held, []]), ...come.map((held): SitePair => [[], held])]
}

/** Lines of one function are sites of their own, unless lines of both recordings moved. */
function byLine([before, after]: SitePair): SitePair[] {
  const lineOf = ({ named }: StackAtPeak) => `${named?.line}`
  const [common, gone, come] = paired(before, after, lineOf)
  if (gone.length > 0 && come.length > 0) return [[before, after]]
  const single = (held: StackAtPeak[]) => [...groupedBy(held, lineOf).values()]
  return [...common, ...onOneSide(single(gone), single(come))]
}

type Key = string | number
type KeyOf = (held: StackAtPeak) => Key

/** The pairs that agree in a key, and what is left of both sides. */
function paired(
  before: readonly StackAtPeak[],
  after: readonly StackAtPeak[],
  keyOf: KeyOf,
): [pairs: SitePair[], before: StackAtPeak[], after: StackAtPeak[]] {
  const [left, right] = [groupedBy(before, keyOf), groupedBy(after, keyOf)]
  const pairs = [...left].flatMap(([key, held]): SitePair[] => (right.has(key) ? [[held, right.get(key)!]] : []))
  const rest = (own: Map<Key, StackAtPeak[]>, other: Map<Key, unknown>) =>
    [...own].flatMap(([key, held]) => (other.has(key) ? [] : held))
  return [pairs, rest(left, right), rest(right, left)]
}

function groupedBy(held: readonly StackAtPeak[], keyOf: KeyOf): Map<Key, StackAtPeak[]> {
  const groups = new Map<Key, StackAtPeak[]>()
  for (const each of held) {
    const key = keyOf(each)
    const alike = groups.get(key)
    if (alike === undefined) groups.set(key, [each])
    else alike.push(each)
  }
  return groups
}

/** The file and the function of a site; a name without a file as it is. */
function functionOf({ named, site }: StackAtPeak): string {
  if (named === undefined || named.file === '' || isMachinery(named.kind)) return site.site ?? ''
  return `${named.file}\n${named.name}`
}
