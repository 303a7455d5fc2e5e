// The end of a path, which says enough.

/** A frame's text with the end of its path: from the package on, or the file and its folder. */
export function shortPath(site: string): string {
  const inPackage = /^.*\/(?:site|dist)-packages\/(.*)$/s.exec(site)
  if (inPackage !== null) return inPackage[1]
  const path = /^[^:]*(?::\/\/[^:]*)?/.exec(site)?.[0] ?? ''
  return path.split('/').slice(-2).join('/') + site.slice(path.length)
}
