// The end of a path, which says enough: from the package on, or the file and two folders. Folders of people are left
// out, and names stay whole.

import { pytorchRoot } from './pytorch-files.js'

const LINE = /^(.+?):\d+(?= )/s
const PACKAGES = /^.*[/\\](?:(?:site|dist)-packages|node_modules)[/\\]/s
/** Folders whose names say nothing: of a person, of Python's library, and of files that a running program wrote. */
const NAMELESS = [
  /^file:\/\//,
  /^[/\\]?(?:[/\\][^/\\]+){0,2}?[/\\]homes?[/\\][^/\\]+[/\\]/s,
  /^(?:[/\\]{2}\?[/\\])?(?:[a-z]:|[/\\]mnt[/\\][a-z])?[/\\](?:users|documents and settings)[/\\][^/\\]+[/\\]/is,
  /^[/\\]root[/\\]/,
  /^.*[/\\]lib(?:64)?[/\\]python3[^/\\]*[/\\]/s,
  /^.*[/\\](?:torchinductor_[^/\\]+|Temp|tmp)[/\\]/s,
]
const SEPARATOR = /[/\\]/g
/** The file and two folders. */
const MOST_PARTS = 3

/** The short form of a path. */
export function shortPath(path: string): string {
  const inPackage = path.replace(PACKAGES, '')
  if (inPackage !== path) return inPackage
  const root = pytorchRoot(path.replaceAll('\\', '/'))
  if (root !== null) return path.slice(root.length - 'torch/'.length)
  const below = NAMELESS.reduce((rest, start) => rest.replace(start, ''), path)
  const separators = [...below.matchAll(SEPARATOR)]
  return separators.length < MOST_PARTS
    ? below.replace(/^[/\\]/, '')
    : below.slice(separators.at(-MOST_PARTS)!.index + 1)
}

/** A site or a frame, `file:line function`, with the short form of its path. Other texts stay as they are. */
export function shortSite(site: string): string {
  const path = LINE.exec(site)?.[1]
  return path === undefined ? site : shortPath(path) + site.slice(path.length)
}

/**
 * A site whose file and line take at most `most` letters: it loses folders from the left, and a name of C++ its
 * namespaces. A longer name stays whole.
 */
export function narrowed(site: string, most: number): string {
  const place = LINE.exec(site)?.[0] ?? site
  if (place.length <= most) return site
  const starts = [...place.matchAll(/[/\\]|::/g)].map(({ index, 0: mark }) => index + mark.length - 1)
  const start = starts.find(at => place.length - at < most) ?? starts.at(-1)
  return start === undefined ? site : `…${site.slice(place[start] === ':' ? start + 1 : start)}`
}
