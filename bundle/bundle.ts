// Bundles the compiler's output in dist/src into few files: importing hundreds takes several times as long. All entry
// points share the files of their common code, so that a process has each module once.

import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { build } from 'esbuild'
import { chunkNames, HASHED_NAMES, withNames } from './chunk-names.js'
import { sharedFiles } from './shared-files.js'

const ROOT = join(dirname(fileURLToPath(import.meta.url)), '..', '..')
const SOURCE = join(ROOT, 'dist', 'src')
/** Files that other code opens by name, besides what package.json exports. */
const OPENED = ['cli/main.js', 'cli/program.js', 'core/device/pool-server-thread.js']

interface PackageJson {
  readonly exports: Record<string, string | { readonly types: string }>
}

/** The entry points of the package, below dist/src. */
function entries(): string[] {
  const { exports } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as PackageJson
  const exported = Object.values(exports).flatMap(entry => (typeof entry === 'string' ? [] : [entry.types]))
  return [...exported.map(types => types.replace(/^\.\/dist\/src\/(.*)\.d\.ts$/, '$1.js')), ...OPENED]
}

/** The bundles by path below dist/lib. Entry points lie where they lie below dist/src. */
export async function bundled(): Promise<Map<string, string>> {
  const lib = join(ROOT, 'dist', 'lib')
  const { outputFiles, metafile } = await build({
    entryPoints: entries().map(entry => join(SOURCE, entry)),
    outbase: SOURCE,
    outdir: lib,
    bundle: true,
    plugins: [sharedFiles(SOURCE, entries())],
    splitting: true,
    chunkNames: HASHED_NAMES,
    metafile: true,
    format: 'esm',
    platform: 'node',
    target: 'node20',
    packages: 'external',
    charset: 'utf8',
    // Here `sideEffects` of package.json would drop imports for their effects: it names the bundles only.
    ignoreAnnotations: true,
    write: false,
    logLevel: 'warning',
  })
  const variables = variableNames()
  const names = chunkNames(metafile)
  const files = new Map(
    outputFiles.map(({ path, text }) => {
      const code = withNames(withoutComments(text), names)
      return [withNames(relative(lib, path), names), withConstants(withClasses(code), variables)]
    }),
  )
  for (const path of ['cli/main.js', 'cli/program.js']) files.set(path, withImportsInTurn(path, files))
  return files
}

/**
 * Code of the command line whose dynamic imports load one file after the other. Node opens all files that a module
 * imports at once, more than a process of few descriptors may.
 */
function withImportsInTurn(path: string, files: ReadonlyMap<string, string>): string {
  const inTurn = files.get(path)!.replace(/\bimport\("(\.[^"]+)"\)/g, (_, specifier: string) => {
    const names = [...loadOrder(join(dirname(path), specifier), files)].map(file => relative(dirname(path), file))
    return `importInTurn(${JSON.stringify(names.map(name => (name.startsWith('.') ? name : `./${name}`)))})`
  })
  const code = `async function importInTurn(names) {
  let last;
  for (const name of names) last = await import(name);
  return last;
}
`
  return inTurn + code
}

/** A file and all that it imports, each after its own imports. */
function loadOrder(path: string, files: ReadonlyMap<string, string>, found = new Set<string>()): Set<string> {
  if (found.has(path)) return found
  const imported = files.get(path)!.matchAll(/^(?:import|\} from) "(\.[^"]+)";$/gm)
  for (const [, specifier] of imported) loadOrder(join(dirname(path), specifier), files, found)
  return found.add(path)
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
