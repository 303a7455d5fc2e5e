// Builds the project's code for the scheduler: each file is rewritten once. A planted bug is a twin of its function
// under a different name, and replaces the function when the module is loaded. Outside of functions it is a twin of
// the file. The result is kept in the folder for temporary files, by a hash of its sources.

import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import type ts from 'typescript'
import { MUTANTS, type Mutant } from './mutants.js'

export const PROJECT = fileURLToPath(new URL('../../..', import.meta.url))
type Typescript = typeof ts

const SCENARIOS = 'proof/interleave/scenarios'
const STAGE = 'proof/interleave/stage.ts'

export interface Built {
  /** code by path in the project, `.ts`; that of a twin by `mutantPath` */
  readonly modules: Record<string, string>
  /** accesses to shared memory that run without a stop */
  readonly atomic: readonly string[]
}

/**
 * Smaller numbers, so that runs are short: fewer looks before a thread sleeps, fewer threads and streams, tables that
 * fill up sooner.
 */
const TUNING: readonly [file: string, pattern: RegExp, replacement: string][] = [
  ['src/core/threads/robust-lock.ts', /const SPINS = \d+/, 'const SPINS = 1'],
  ['src/core/pool/shared/shared-state.ts', /const MOST_RECORDS = .*/, 'const MOST_RECORDS = 2 ** 11 - 1'],
  ['src/core/pool/shared/shared-state.ts', /const SPARE_RECORDS = .*/, 'const SPARE_RECORDS = 64'],
  ['src/core/pool/shared/shared-state.ts', /const MOST_RANGES = .*/, 'const MOST_RANGES = 16'],
  ['src/core/threads/biased-lock.ts', /const SPINS = \d+/, 'const SPINS = 1'],
  ['src/core/threads/biased-lock.ts', /const MOST_WAITS = \d+/, 'const MOST_WAITS = 1'],
  ['src/core/threads/thread-registry.ts', /const MOST_WORKERS = \d+/, 'const MOST_WORKERS = 7'],
  ['src/core/pool/shared/remote-frees.ts', /const BATCHES = \d+/, 'const BATCHES = 2'],
  ['src/core/heap/records.ts', /const PAGE_SHIFT = \d+/, 'const PAGE_SHIFT = 4'],
  ['src/core/order/vector-clocks.ts', /const MOST_STREAMS = \d+/, 'const MOST_STREAMS = 8'],
  ['src/core/pool/caching/stream-caches.ts', /\bknown = 11/, 'known = 3'],
  ['src/core/pool/shared/remote-frees.ts', /const BATCH_SHIFT = \d+/, 'const BATCH_SHIFT = 2'],
]

/** The code of a file of the project with a planted bug, or with none. */
export function codeOf({ modules }: Built, path: string, mutant: Mutant | null): string | undefined {
  const code = modules[path]
  if (mutant?.file !== path) return code
  return modules[mutantPath(mutant)] ?? code?.replaceAll(suffixOf(mutant), '')
}

function mutantPath(mutant: Mutant): string {
  return mutant.file.replace(/\.ts$/, `.${suffixOf(mutant)}.ts`)
}

/** The suffix of a twin's name. */
function suffixOf({ name }: Mutant): string {
  return `$bug${createHash('sha256').update(name).digest('hex').slice(0, 8)}`
}

export async function build(): Promise<Built> {
  const hash = createHash('sha256')
  for (const folder of ['src', SCENARIOS]) {
    for (const path of readdirSync(join(PROJECT, folder), { recursive: true, encoding: 'utf8' }).sort()) {
      if (path.endsWith('.ts')) hash.update(`${path}\n`).update(readFileSync(join(PROJECT, folder, path)))
    }
  }
  for (const name of ['build', 'colours', 'rewrite', 'rewrite-class', 'mutants']) {
    hash.update(readFileSync(new URL(`./${name}.js`, import.meta.url)))
  }
  const folder = join(tmpdir(), `cuda-mempool-interleave-${process.getuid?.() ?? 0}`)
  const path = join(folder, `${hash.digest('hex').slice(0, 32)}.json`)
  if (existsSync(path)) return JSON.parse(readFileSync(path, 'utf8')) as Built
  const built = await compile()
  mkdirSync(folder, { recursive: true, mode: 0o700 })
  writeFileSync(`${path}.${process.pid}`, JSON.stringify(built))
  renameSync(`${path}.${process.pid}`, path)
  return built
}

/** By path, the texts of files as they are run that are not those of the project. */
function sources(ts: Typescript): Map<string, string> {
  const texts = new Map<string, string>()
  const read = (path: string) => texts.get(path) ?? readFileSync(join(PROJECT, path), 'utf8')
  for (const [path, pattern, replacement] of TUNING) texts.set(path, read(path).replace(pattern, replacement))
  for (const path of new Set(MUTANTS.map(({ file }) => file))) {
    const text = read(path)
    const file = ts.createSourceFile(path, text, ts.ScriptTarget.ES2022, true)
    const twins: [at: number, text: string][] = []
    for (const mutant of MUTANTS.filter(each => each.file === path)) {
      const start = placeOf(mutant.find, text, mutant)
      const end = start + mutant.find.length
      const around = mutant.also === undefined ? functionAround(ts, file, start, end) : null
      if (around === null) texts.set(mutantPath(mutant), planted(text, mutant))
      else {
        const [from, name] = [around.getStart(file), around.name!.getEnd()]
        const head = text.slice(from, name) + suffixOf(mutant) + text.slice(name, start)
        twins.push([around.getEnd(), `\n${head}${mutant.replace}${text.slice(end, around.getEnd())}\n`])
      }
    }
    twins.sort(([one], [other]) => one - other)
    let [whole, at] = ['', 0]
    for (const [end, twin] of twins) {
      whole += text.slice(at, end) + twin
      at = end
    }
    texts.set(path, whole + text.slice(at))
  }
  return texts
}

/** Where a text that a bug replaces stands in its file. */
function placeOf(find: string, text: string, { name, file }: Mutant): number {
  const start = text.indexOf(find)
  if (start !== -1 && !text.includes(find, start + 1)) return start
  throw new Error(`${name}: its place in ${file} is not found, or twice`)
}

/** A file with a bug. */
function planted(text: string, mutant: Mutant): string {
  const put = (whole: string, [find, replace]: readonly [string, string]) => {
    const start = placeOf(find, whole, mutant)
    return whole.slice(0, start) + replace + whole.slice(start + find.length)
  }
  const first = put(text, [mutant.find, mutant.replace])
  return mutant.also === undefined ? first : put(first, mutant.also)
}

/** The method, accessor or function with a name that a stretch of a file lies in the body of; null for none. */
function functionAround(ts: Typescript, file: ts.SourceFile, start: number, end: number) {
  const find = (node: ts.Node): ts.FunctionDeclaration | ts.MethodDeclaration | ts.GetAccessorDeclaration | null => {
    const isTwinned = ts.isFunctionDeclaration(node) || ts.isMethodDeclaration(node) || ts.isGetAccessor(node)
    if (isTwinned && node.name !== undefined && node.body !== undefined) {
      return start >= node.body.getStart(file) && end <= node.end ? node : null
    }
    return node.forEachChild(child => find(child) ?? undefined) ?? null
  }
  return find(file)
}

async function compile(): Promise<Built> {
  const { default: ts } = await import('typescript')
  const { Colours } = await import('./colours.js')
  const { rewrite } = await import('./rewrite.js')
  const texts = sources(ts)
  const { config } = ts.readConfigFile(join(PROJECT, 'tsconfig.json'), ts.sys.readFile)
  const options = ts.parseJsonConfigFileContent(config, ts.sys, PROJECT).options
  const host = ts.createCompilerHost(options)
  const { readFile, fileExists } = host
  const textOf = (path: string) => texts.get(relative(PROJECT, path))
  host.fileExists = path => textOf(path) !== undefined || fileExists(path)
  host.readFile = path => textOf(path) ?? readFile(path)
  const scenarios = readdirSync(join(PROJECT, SCENARIOS)).map(name => `${SCENARIOS}/${name}`)
  const roots = [...scenarios, ...texts.keys()].map(path => join(PROJECT, path))
  const program = ts.createProgram({ rootNames: roots, options, host })
  const files = program.getSourceFiles().filter(file => !file.isDeclarationFile)
  const pathOf = (file: ts.SourceFile) => relative(PROJECT, file.fileName)
  const parts = new Map(files.map(file => [file, partOf(pathOf(file), file.text)]))
  const colours = new Colours(
    program.getTypeChecker(),
    files,
    file => parts.get(file) ?? 'quiet',
    node => pathOf(node.getSourceFile()) === STAGE,
  )
  const rewritten = new Map(files.map(file => [join(PROJECT, pathOf(file)), rewrite(file, colours)]))
  return { modules: transpile(ts, rewritten), atomic: [...new Set(colours.atomic)].sort() }
}

/** JavaScript by path in the project; all at once, which is three times as fast as one after another. */
function transpile(ts: Typescript, texts: ReadonlyMap<string, string>): Record<string, string> {
  const options: ts.CompilerOptions = {
    target: ts.ScriptTarget.ES2022,
    module: ts.ModuleKind.CommonJS,
    useDefineForClassFields: false,
    removeComments: true,
    isolatedModules: true,
    noCheck: true, // the texts name nothing of types
    noResolve: true,
    noLib: true,
  }
  const host: ts.CompilerHost = {
    ...ts.createCompilerHost(options),
    fileExists: path => texts.has(path),
    readFile: path => texts.get(path),
    getSourceFile: path => ts.createSourceFile(path, texts.get(path) ?? '', ts.ScriptTarget.ES2022),
  }
  const modules: Record<string, string> = {}
  ts.createProgram([...texts.keys()], options, host).emit(undefined, (path, code) => {
    modules[relative(PROJECT, path).replace(/\.js$/, '.ts')] = code
  })
  return modules
}

/** Threads meet in files that use atomic operations, and in those that take what was published. */
function partOf(path: string, text: string): 'points' | 'quiet' | 'atomic' {
  if (/^src\/(driver\/(simulated|native)|kernel)\//.test(path)) return 'atomic'
  if (path.startsWith(SCENARIOS)) return 'points'
  return dirname(path).startsWith('src') && /\bAtomics\.|memory-order\.js/.test(text) ? 'points' : 'quiet'
}
