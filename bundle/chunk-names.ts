// Names for the files that entry points share. Stacks show them, so each name says what is inside, and stays the same
// while the modules do.

import { basename, dirname } from 'node:path'
import type { Metafile } from 'esbuild'

/** The names that esbuild gives these files, until they have their own. */
export const HASHED_NAMES = 'chunk-[hash]'
const HASHED = /\bchunk-[A-Z0-9]{8}\b/g

/** Text with a readable name for each name with a hash. */
export function withNames(text: string, names: ReadonlyMap<string, string>): string {
  return text.replaceAll(HASHED, hashed => names.get(hashed)!)
}

/** The readable names, such as `core-pool`, by those with a hash. The largest file chooses first. */
export function chunkNames({ outputs }: Metafile): Map<string, string> {
  const names = new Map<string, string>()
  const taken = new Set(['index']) // the name of the main entry point
  for (const [path, output] of Object.entries(outputs).sort(([, one], [, other]) => other.bytes - one.bytes)) {
    const hashed = basename(path, '.js')
    if (hashed.replace(HASHED, '') !== '') continue
    const name = places(output).find(place => !taken.has(place))!
    taken.add(name)
    names.set(hashed, name.replaceAll('/', '-'))
  }
  return names
}

/** What a file is named after: the module that programs import, else a folder with half of its code, else a module. */
function places({ entryPoint, inputs }: Metafile['outputs'][string]): string[] {
  const modules = Object.entries(inputs).map(([path, { bytesInOutput }]) => ({ place: placeOf(path), bytesInOutput }))
  if (entryPoint !== undefined) return [modules.length > 0 ? placeOf(entryPoint) : `${placeOf(entryPoint)}/entry`]
  modules.sort((one, other) => other.bytesInOutput - one.bytesInOutput)
  return [...(modules.length > 1 ? mainFolders(modules) : []), modules[0].place, `${modules[0].place}/module`]
}

/** The folders that hold at least half of the code of some modules, the deepest first. */
function mainFolders(modules: readonly { readonly place: string; readonly bytesInOutput: number }[]): string[] {
  const bytes = new Map<string, number>()
  for (const { place, bytesInOutput } of modules) {
    for (let folder = dirname(place); folder !== '.'; folder = dirname(folder)) {
      bytes.set(folder, (bytes.get(folder) ?? 0) + bytesInOutput)
    }
  }
  const most = modules.reduce((sum, module) => sum + module.bytesInOutput, 0) / 2
  const main = [...bytes].filter(([, held]) => held >= most).map(([folder]) => folder)
  return main.sort((one, other) => other.length - one.length)
}

/** The place of a module below dist/src, such as `core/pool/pool`. */
function placeOf(path: string): string {
  return path.replace(/^.*dist\/src\/(.*)\.js$/, '$1')
}
