// Node opens all files that a module imports at once. The command line also runs in a process of few descriptors, so
// its first file imports one file after the other.

import { dirname, join, relative } from 'node:path'

const STATIC = /^(?:import|export|\}) .*?from "(\.[^"]+)";$|^import "(\.[^"]+)";$/gm
const LATER = /\bimport\("(\.[^"]+)"\)/g

/** The code of a file that imports others later: the imports of these come before them, one file at a time. */
export function importsInTurn(file: string, files: ReadonlyMap<string, string>): string {
  const code = files.get(file)!
  const inTurn = code.replaceAll(LATER, (_, specifier: string) => {
    const order = new Set<string>()
    addInOrder(join(dirname(file), specifier), files, order)
    const paths = [...order].map(path => `./${relative(dirname(file), path)}`.replace('./..', '..'))
    return `importInTurn(${JSON.stringify(paths, null, 2)})`
  })
  return `${inTurn}
async function importInTurn(paths) {
  let last;
  for (const path of paths) last = await import(path);
  return last;
}
`
}

/** Adds what a file imports, and then the file. */
function addInOrder(file: string, files: ReadonlyMap<string, string>, order: Set<string>): void {
  if (order.has(file)) return
  for (const [, from, alone] of files.get(file)!.matchAll(STATIC)) {
    addInOrder(join(dirname(file), from ?? alone), files, order)
  }
  order.add(file)
}
