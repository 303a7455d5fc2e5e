// Bundles the compiler's output in dist/src into few files: importing hundreds takes several times as long. All entry
// points and the command line share the files of their common code, so that a process has each module once.

import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type BuildOptions, build } from 'esbuild'
import { chunkNames, HASHED_NAMES, withNames } from './chunk-names.js'
import { importsInTurn } from './imports-in-turn.js'
import { sharedFiles } from './shared-files.js'

const ROOT = join(dirname(fileURLToPath(import.meta.url)), '..', '..')
const SOURCE = join(ROOT, 'dist', 'src')
const LIB = join(ROOT, 'dist', 'lib')
/** A file that other code opens by name, besides what package.json exports. */
const OPENED = 'core/device/pool-server-thread.js'
/** The first imports the others when they are to run. */
const COMMAND_LINE = ['cli/main.js', 'cli/program.js', 'cli/keep/run-keeper.js']
const OPTIONS = {
  outbase: SOURCE,
  outdir: LIB,
  bundle: true,
  format: 'esm',
  platform: 'node',
  target: 'node20',
  packages: 'external',
  charset: 'utf8',
  // Here `sideEffects` of package.json would drop imports for their effects: it names the bundles only.
  ignoreAnnotations: true,
  write: false,
  logLevel: 'warning',
} satisfies BuildOptions

interface PackageJson {
  readonly exports: Record<string, string | { readonly types: string }>
}

/** The entry points of the package and of its command line, below dist/src. */
function entries(): string[] {
  const { exports } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as PackageJson
  const exported = Object.values(exports).flatMap(entry => (typeof entry === 'string' ? [] : [entry.types]))
  return [...exported.map(types => types.replace(/^\.\/dist\/src\/(.*)\.d\.ts$/, '$1.js')), OPENED, ...COMMAND_LINE]
}

/** The bundles by path below dist/lib. Entry points lie where they lie below dist/src. */
export async function bundled(): Promise<Map<string, string>> {
  const library = await build({
    ...OPTIONS,
    entryPoints: entries().map(entry => join(SOURCE, entry)),
    plugins: [sharedFiles(SOURCE, entries())],
    splitting: true,
    chunkNames: HASHED_NAMES,
    metafile: true,
  })
  const variables = variableNames()
  const names = chunkNames(library.metafile)
  const files = new Map(
    library.outputFiles.map(({ path, text }) => {
      const code = withNames(withoutComments(text), names)
      return [withNames(relative(LIB, path), names), withConstants(withClasses(code), variables)]
    }),
  )
  return files.set(COMMAND_LINE[0], importsInTurn(COMMAND_LINE[0], files))
}

/**
 * Code with classes as the compiler wrote them. esbuild makes a variable of each class, and calls a class `_Name` that
 * mentions itself. Stacks and logs would show that name, and editors find methods only in classes that are declared.
 */
function withClasses(code: string): string {
  const renamed = [...code.matchAll(/^var (\w+) = class _\1\b/gm)].map(([, name]) => name)
  const named = renamed.reduce((text, name) => text.replaceAll(new RegExp(`\\b_${name}\\b`, 'g'), name), code)
  return named.replaceAll(/^var (\w+) = class(?: \1)?\b/gm, 'class $1')
}

/** Names that modules declare by `let` outside of functions. */
function variableNames(): Set<string> {
  const files = readdirSync(SOURCE, { recursive: true, encoding: 'utf8' }).filter(path => path.endsWith('.js'))
  const code = files.map(path => readFileSync(join(SOURCE, path), 'utf8'))
  return new Set(code.flatMap(text => [...text.matchAll(/^(?:export )?let (\w+)/gm)].map(([, name]) => name)))
}

/**
 * Code with constants as the compiler wrote them. esbuild makes variables of them, and V8 writes only the values of
 * constants into the code that it optimizes. A number at the end of a name may be esbuild's.
 */
function withConstants(code: string, variables: Set<string>): string {
  const named = code.replaceAll(/^var (\w+?)(\d*) = /gm, (declaration, name, digits) =>
    variables.has(name) || variables.has(name + digits) ? declaration : `const ${name}${digits} = `,
  )
  return named.replaceAll(/^var (?=[[{])/gm, 'const ')
}

/** Code without the comments that esbuild leaves at the members of classes. The declarations have them, too. */
function withoutComments(code: string): string {
  let isWithin = false
  const lines = code.split('\n').filter(line => {
    isWithin ||= /^ *\/\*\*/.test(line)
    const isCode = !isWithin
    if (line.endsWith('*/')) isWithin = false
    return isCode
  })
  return lines.join('\n')
}
