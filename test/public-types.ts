// Writes the types of the package: the exports of its entry points, without members marked @internal. Run it
// after the compiler: `node dist/test/public-types.js` replaces the compiler's declarations in dist.
//
// The compiler's own option stripInternal leaves the interfaces that a class implements, and all that its private and
// protected members mention, so that its result does not compile with skipLibCheck: false.

import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'

import ts = require('typescript')

const BUILT = fileURLToPath(new URL('../src', import.meta.url))
/** The declaration files of the entry points, below `BUILT`, by what programs import. */
export const ENTRIES: Readonly<Record<string, string>> = entryPoints()
/** The classes that programs make themselves; all others are made by a device, a pool or a function. */
const OWN_CONSTRUCTOR = /Error$|^Simulat(ion|edArena|edHeap)$/

/** The entry points that package.json exports. */
function entryPoints(): Record<string, string> {
  const { exports } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as {
    readonly exports: Readonly<Record<string, string | { readonly types: string }>>
  }
  const entries = Object.entries(exports).flatMap(([subpath, entry]) =>
    typeof entry === 'string' ? [] : [[subpath.replace('.', 'cuda-mempool'), relative('dist/src', entry.types)]],
  )
  return Object.fromEntries(entries)
}

/** A declaration file of the compiler. */
interface Source {
  readonly path: string
  readonly file: ts.SourceFile
  /** by local name: the file and the name there that it was imported as */
  readonly imports: ReadonlyMap<string, { readonly from: string; readonly name: string }>
  readonly declarations: ReadonlyMap<string, readonly ts.Statement[]>
}

/** The public part of each declaration file, by its path below the folder of the build. */
export function publicTypes(): Map<string, string> {
  sources.clear()
  const needed = new Map<string, Set<string>>()
  const texts = new Map<string, string>()
  const pending: [path: string, name: string][] = []
  const want = (path: string, name: string) => {
    const names = needed.get(path) ?? new Set<string>()
    needed.set(path, names)
    if (names.has(name)) return
    names.add(name)
    pending.push([path, name])
  }
  for (const entry of Object.values(ENTRIES)) {
    const path = join(BUILT, entry)
    texts.set(path, readFileSync(path, 'utf8'))
    for (const exported of exportsOf(path)) {
      const declared = originOf(exported.from, exported.name)
      if (declared !== null) want(declared.from, declared.name)
    }
  }
  for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
    const [path, name] = next
    const source = sourceOf(path)
    for (const statement of source.declarations.get(name) ?? []) {
      for (const used of namesIn(statement)) {
        const declared = originOf(path, used)
        if (declared !== null) want(declared.from, declared.name)
      }
    }
  }
  for (const [path, names] of needed) if (!texts.has(path)) texts.set(path, printed(sourceOf(path), names))
  return new Map([...texts].map(([path, text]) => [relative(BUILT, path), text]))
}

const sources = new Map<string, Source>()

function sourceOf(path: string): Source {
  const known = sources.get(path) ?? readSource(path)
  sources.set(path, known)
  return known
}

/**
 * The file that declares a name of a file, and the name there; null for a name of another package or of JavaScript.
 */
function originOf(path: string, name: string): { readonly from: string; readonly name: string } | null {
  const source = sourceOf(path)
  if (source.declarations.has(name)) return { from: path, name }
  const imported = source.imports.get(name)
  return imported === undefined ? null : originOf(imported.from, imported.name)
}

function readSource(path: string): Source {
  const file = ts.createSourceFile(path, readFileSync(path, 'utf8'), ts.ScriptTarget.ES2022, true)
  const imports = new Map<string, { from: string; name: string }>()
  const declarations = new Map<string, ts.Statement[]>()
  for (const { local, from, name } of exportsOf(path)) imports.set(local, { from, name })
  for (const statement of file.statements) {
    if (ts.isImportDeclaration(statement)) {
      const from = targetOf(path, (statement.moduleSpecifier as ts.StringLiteral).text)
      const bindings = statement.importClause?.namedBindings
      if (from === null || bindings === undefined || !ts.isNamedImports(bindings)) continue
      for (const { name, propertyName } of bindings.elements) {
        imports.set(name.text, { from, name: (propertyName ?? name).text })
      }
    } else
      for (const name of declaredNames(statement))
        declarations.set(name, [...(declarations.get(name) ?? []), statement])
  }
  return { path, file, imports, declarations }
}

/** The names that a file exports from other files. */
function exportsOf(path: string): { readonly local: string; readonly from: string; readonly name: string }[] {
  const file = ts.createSourceFile(path, readFileSync(path, 'utf8'), ts.ScriptTarget.ES2022, true)
  return file.statements.flatMap(statement => {
    if (!ts.isExportDeclaration(statement) || statement.moduleSpecifier === undefined) return []
    const { exportClause, moduleSpecifier } = statement
    const from = targetOf(path, (moduleSpecifier as ts.StringLiteral).text)
    if (from === null || exportClause === undefined || !ts.isNamedExports(exportClause)) return []
    return exportClause.elements.map(({ name, propertyName }) => {
      return { local: name.text, from, name: (propertyName ?? name).text }
    })
  })
}

/** The declaration file of a relative specifier; null for another package. */
function targetOf(path: string, specifier: string): string | null {
  if (!specifier.startsWith('.')) return null
  return resolve(dirname(path), specifier.replace(/\.js$/, '.d.ts'))
}

function declaredNames(statement: ts.Statement): string[] {
  if (ts.isVariableStatement(statement)) {
    return statement.declarationList.declarations.map(({ name }) => (name as ts.Identifier).text)
  }
  const { name } = statement as { readonly name?: ts.Identifier }
  return name === undefined ? [] : [name.text]
}

/** Whether a member is left out: it is internal, private or protected. */
function isHidden(node: ts.Node): boolean {
  if (ts.isConstructorDeclaration(node)) return false
  const flags = ts.ModifierFlags.Private | ts.ModifierFlags.Protected
  if (ts.isClassElement(node) && (ts.getCombinedModifierFlags(node) & flags) !== 0) return true
  return (ts.isClassElement(node) || ts.isTypeElement(node)) && isInternal(node)
}

function isInternal(node: ts.Node): boolean {
  return ts.getJSDocTags(node).some(({ tagName }) => tagName.text === 'internal')
}

/** Whether a constructor is left to the package: `protected constructor()` stands for it. */
function isOwnConstructor(node: ts.Node): boolean {
  return ts.isConstructorDeclaration(node) && !OWN_CONSTRUCTOR.test(node.parent.name?.text ?? '')
}

/** Clauses `implements`, which may name internal interfaces; the members say the same. */
function isImplements(node: ts.Node): boolean {
  return ts.isHeritageClause(node) && node.token === ts.SyntaxKind.ImplementsKeyword && !isDisposable(node)
}

function isDisposable({ types }: ts.HeritageClause): boolean {
  return types.length === 1 && types[0].getText() === 'Disposable'
}

/** A parameter that the function takes apart. Its parts may be internal. */
function isPattern(node: ts.Node): boolean {
  return ts.isObjectBindingPattern(node) && ts.isParameter(node.parent)
}

/** A name for a parameter that is taken apart: its type's. */
function nameFor({ type }: ts.ParameterDeclaration): string {
  const name = type !== undefined && ts.isTypeReferenceNode(type) ? type.typeName.getText() : 'options'
  return name.replace(/^\w/, first => first.toLowerCase())
}

/** The names that the visible part of a declaration mentions. */
function namesIn(root: ts.Node): Set<string> {
  const names = new Set<string>()
  const visit = (node: ts.Node): void => {
    if (isHidden(node) || isOwnConstructor(node) || isImplements(node)) return
    if (ts.isIdentifier(node)) names.add(node.text)
    ts.forEachChild(node, child => {
      if (!isPattern(child)) visit(child)
    })
  }
  visit(root)
  return names
}

/** A declaration file with the wanted names only. */
function printed({ path, file, imports, declarations }: Source, wanted: ReadonlySet<string>): string {
  const statements = new Set([...wanted].flatMap(name => declarations.get(name) ?? []))
  const used = new Set([...statements].flatMap(statement => [...namesIn(statement)]))
  const lines = [...imports.keys()].flatMap(local => {
    const origin = used.has(local) && !declarations.has(local) ? originOf(path, local) : null
    if (origin === null) return []
    const specifier = relative(dirname(path), origin.from).replace(/\.d\.ts$/, '.js')
    const what = local === origin.name ? local : `${origin.name} as ${local}`
    return `import type { ${what} } from '${specifier.startsWith('.') ? specifier : `./${specifier}`}';\n`
  })
  for (const statement of file.statements) if (statements.has(statement)) lines.push(visibleText(statement))
  return `${lines.join('')}export {};\n`
}

/** The text of a declaration without its hidden parts, and with its comment. */
function visibleText(statement: ts.Statement): string {
  const whole = statement.getFullText()
  const start = statement.getFullStart()
  let text = ''
  let position = 0
  const cut = (node: ts.Node, instead: string) => {
    text += whole.slice(position, node.getFullStart() - start) + instead
    position = node.getEnd() - start
  }
  const visit = (node: ts.Node): void => {
    if (isHidden(node) || isImplements(node)) cut(node, '')
    else if (isPattern(node)) cut(node, nameFor(node.parent as ts.ParameterDeclaration))
    else if (isOwnConstructor(node)) cut(node, `\n    /** Made by the package. */\n    protected constructor();`)
    else ts.forEachChild(node, visit)
  }
  visit(statement)
  return text + whole.slice(position)
}

/** Replaces all declarations below a folder by the public types. */
export function replaceTypes(folder: string): void {
  const types = publicTypes()
  for (const path of readdirSync(folder, { recursive: true, encoding: 'utf8' })) {
    if (path.endsWith('.d.ts')) rmSync(join(folder, path))
  }
  for (const [path, text] of types) writeFileSync(join(folder, path), text)
}

/** Lets the next build write all files anew: it would take those that were changed since for the compiler's own. */
export function forgetBuild(): void {
  rmSync(join(BUILT, '..', 'tsconfig.tsbuildinfo'), { force: true })
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  forgetBuild()
  replaceTypes(BUILT)
}
