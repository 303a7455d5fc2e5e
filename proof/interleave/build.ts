// The project's code as the scheduler can run it: each file rewritten, once, and each planted bug as a file of its own beside
// the one that it is in. Kept in the system's folder for temporary files, by a hash of all that it depends on.

import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import type ts from 'typescript'
import { MUTANTS } from './mutants.js'

export const PROJECT = fileURLToPath(new URL('../../../', import.meta.url))
const SCENARIOS = 'proof/interleave/scenarios'
const STAGE = 'proof/interleave/stage.ts'

export interface Built {
  /** code by path in the project, `.ts`; that of a planted bug by `mutantPath` */
  readonly modules: Record<string, string>
  /** what runs at once although it touches shared memory */
  readonly atomic: readonly string[]
}

/** Smaller numbers, for small worlds: fewer looks before a thread sleeps, fewer threads, and what fills up sooner. */
const TUNING: readonly [file: string, pattern: RegExp, replacement: string][] = [
  ['src/base/robust-lock.ts', /const SPINS = \d+/, 'const SPINS = 1'],
  ['src/base/roster.ts', /const MOST_WORKERS = \d+/, 'const MOST_WORKERS = 7'],
  ['src/pool/inboxes.ts', /const PARCELS = \d+/, 'const PARCELS = 2'],
  ['src/pool/inboxes.ts', /const PARCEL_SHIFT = \d+/, 'const PARCEL_SHIFT = 2'],
]

/** Where the code of a file with a planted bug is. */
export function mutantPath(file: string, name: string): string {
  return file.replace(/\.ts$/, `.mutant-${createHash('sha256').update(name).digest('hex').slice(0, 8)}.ts`)
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

/** The text of a file of the project as it is run, with a bug if one is named. */
function sources(): Map<string, string> {
  const texts = new Map<string, string>()
  const read = (path: string) => readFileSync(join(PROJECT, path), 'utf8')
  for (const [path, pattern, replacement] of TUNING) {
    texts.set(path, (texts.get(path) ?? read(path)).replace(pattern, replacement))
  }
  for (const { name, file, find, replace } of MUTANTS) {
    const text = texts.get(file) ?? read(file)
    const parts = text.split(find)
    if (parts.length !== 2) throw new Error(`${name}: its place is found ${parts.length - 1} times in ${file}`)
    texts.set(mutantPath(file, name), parts.join(replace))
  }
  return texts
}

async function compile(): Promise<Built> {
  const { default: ts } = await import('typescript')
  const { Colours } = await import('./colours.js')
  const { rewrite } = await import('./rewrite.js')
  const texts = sources()
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
  const modules: Record<string, string> = {}
  for (const file of files) {
    const { outputText } = ts.transpileModule(rewrite(file, colours), {
      compilerOptions: {
        target: ts.ScriptTarget.ES2022,
        module: ts.ModuleKind.CommonJS,
        useDefineForClassFields: false,
        removeComments: true,
      },
    })
    modules[pathOf(file)] = outputText
  }
  return { modules, atomic: [...new Set(colours.atomic)].sort() }
}

/** Threads meet in files that use atomic operations, and in those that take what was published. */
function partOf(path: string, text: string): 'points' | 'quiet' | 'atomic' {
  if (/^src\/(driver\/(simulated|native)|kernel)\//.test(path)) return 'atomic'
  if (path.startsWith(SCENARIOS)) return 'points'
  return dirname(path).startsWith('src') && /\bAtomics\.|base\/publish|\bpublish\(/.test(text) ? 'points' : 'quiet'
}
