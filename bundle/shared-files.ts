// Decides which modules share a file of the package. esbuild puts those together that the same entry points need, which
// makes a hundred small files. So entry points need more than they use: most of them all that the main one has, for a
// program loads that anyway.

import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Plugin } from 'esbuild'

const MAIN = 'index.js'
const BASE = 'core/base'
/** Entry points that need no pools get `BASE` only. */
const WITHOUT_POOLS = ['entries/report.js', 'entries/simulated.js', 'cli/main.js', 'cli/keep/run-keeper.js']
/** Entry points that get nothing more: they import the rest later, or hold types only. */
const AS_THEY_ARE = ['entries/driver.js']
/** Further imports of entry points, against files with few modules. */
const MORE: Readonly<Record<string, readonly string[]>> = {
  'cli/program.js': ['entries/live.js', 'core/keeper/state/generation.js'],
  'cli/keep/run-keeper.js': ['core/keeper/client.js'],
}
/** Modules that are imported later, by code that has what the main entry point has. */
const LATER = ['live/serve-all.js', 'core/pool/shared/pool-server-loop.js']
/** The file whose later imports become imports at the start: a command loads all of the command line. */
const AT_ONCE = 'cli/program.js'
/** But this file has an entry of its own. */
const APART = './keep/run-keeper.js'
const OF_TESTS = /\.(test|suite|fixture|worker)\.js$/
/** Where the imports are added. */
const END = /(?=^\/\/# sourceMappingURL)/m

/** `source` is the folder of the compiler's output, and the entry points lie in it. */
export function sharedFiles(source: string, entries: readonly string[]): Plugin {
  const read = (path: string) => readFileSync(join(source, path), 'utf8')
  const imports = (paths: readonly string[]) => paths.map(path => `import '${join(source, path)}'\n`).join('')
  const base = readdirSync(join(source, BASE)).filter(name => name.endsWith('.js') && !OF_TESTS.test(name))
  const ofMain = [...read(MAIN).matchAll(/ from '(\.[^']+)'/g)].map(([, path]) => path)
  const withBase = imports(base.map(name => join(BASE, name)))
  const withMain = withBase + imports(ofMain)
  const addedTo = (entry: string) => (WITHOUT_POOLS.includes(entry) ? withBase : withMain) + imports(MORE[entry] ?? [])
  const grown = [...entries, ...LATER].filter(entry => !AS_THEY_ARE.includes(entry))
  const contents = new Map(
    grown.map(entry => {
      const code = entry === AT_ONCE ? importedAtOnce(read(entry)) : read(entry)
      return [join(source, entry), code.replace(END, addedTo(entry))]
    }),
  )
  return {
    name: 'shared files',
    setup({ onLoad }) {
      onLoad({ filter: /\.js$/ }, ({ path }) => {
        const text = contents.get(path)
        return text === undefined ? undefined : { contents: text }
      })
    },
  }
}

/** Code whose later imports are imports at the start. Otherwise each of them would make files of its own. */
function importedAtOnce(code: string): string {
  const imports: string[] = []
  const text = code.replaceAll(/\bimport\('(\.[^']+)'\)/g, (later: string, specifier: string) => {
    if (specifier === APART) return later
    imports.push(`import * as later${imports.length} from '${specifier}'\n`)
    return `Promise.resolve(later${imports.length - 1})`
  })
  return text.replace(END, imports.join(''))
}
