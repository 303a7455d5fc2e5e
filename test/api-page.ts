// Writes docs/api.md, the surface of the package by entry point, from its public types. Run it after the compiler:
// `node dist/test/api-page.js`. A test compares the page with the types, so the surface changes only by a visible edit.

import { readFileSync, writeFileSync } from 'node:fs'
import { join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'

import ts = require('typescript')

import { ENTRIES, publicTypes } from './public-types.js'

export const API_PAGE = fileURLToPath(new URL('../../docs/api.md', import.meta.url))
const BUILT = fileURLToPath(new URL('../src', import.meta.url))
const COLUMNS = 120
/** The classes whose members the page lists; those of a base before those that extend it. */
const MAIN_CLASSES = [
  'Device',
  'Stream',
  'Event',
  'Graph',
  'Module',
  'Kernel',
  'Pool',
  'CachingPool',
  'ArenaPool',
  'ArenaQueue',
  'BlockPool',
  'HostPool',
  'DeviceBuffer',
  'DeviceArray',
  'HostBuffer',
  'HostArray',
  'GrowableBuffer',
]

/** The exports of an entry point. */
export interface Surface {
  readonly specifier: string
  /** names that exist at run time; the others are types only */
  readonly values: readonly string[]
  readonly types: readonly string[]
  /** classes and interfaces */
  readonly shapes: number
  /** members that these declare themselves, without those of base classes */
  readonly members: number
}

/** The surface of each entry point; `paths` are the files of the program with the types of `ENTRIES`. */
export function surfacesOf(program: ts.Program, paths: readonly string[]): Surface[] {
  return Object.keys(ENTRIES).map((specifier, index) => {
    const exported = exportsOf(program, paths[index])
    const values = exported.filter(({ isValue }) => isValue)
    const shapes = exported.filter(({ symbol }) => (symbol.flags & SHAPE) !== 0)
    return {
      specifier,
      values: values.map(({ name }) => name),
      types: exported.filter(({ isValue }) => !isValue).map(({ name }) => name),
      shapes: shapes.length,
      members: shapes.reduce((sum, { symbol }) => sum + ownMembers(symbol), 0),
    }
  })
}

/** The text of docs/api.md. */
export function apiPage(program: ts.Program, paths: readonly string[]): string {
  const surfaces = surfacesOf(program, paths)
  const parts = surfaces.map(({ specifier, values, types }) =>
    [`## \`${specifier}\``, listed('Values', values), listed('Types', types)].filter(part => part !== '').join('\n\n'),
  )
  const intro = filled(
    'Every name that the package exports, as its types say. Each name has one entry point. The site, made by ' +
      '`npm run site`, explains them. `npm run docs:api` writes this page, and a test compares it with the types.',
  )
  const members = `## Members of the main classes\n\n${memberLines(program, paths[0]).join('\n')}`
  const head = ['# The surface of the package', 'For Node engineers who look up a name, and where to import it.', intro]
  return `${[...head, countTable(surfaces), ...parts, members].join('\n\n')}\n`
}

const SHAPE = ts.SymbolFlags.Class | ts.SymbolFlags.Interface

interface Exported {
  readonly name: string
  readonly symbol: ts.Symbol
  readonly isValue: boolean
}

function exportsOf(program: ts.Program, path: string): Exported[] {
  const checker = program.getTypeChecker()
  const module = checker.getSymbolAtLocation(program.getSourceFile(path)!)
  const exported = module === undefined ? [] : checker.getExportsOfModule(module)
  return exported
    .map(alias => {
      const symbol = (alias.flags & ts.SymbolFlags.Alias) === 0 ? alias : checker.getAliasedSymbol(alias)
      const isType = alias.declarations?.some(ts.isTypeOnlyExportDeclaration) === true
      return { name: alias.name, symbol, isValue: !isType && (symbol.flags & ts.SymbolFlags.Value) !== 0 }
    })
    .sort((a, b) => compare(a.name, b.name))
}

/** How many members a class or an interface declares, static ones too; JavaScript's own symbols do not count. */
function ownMembers({ members, exports }: ts.Symbol): number {
  const declared = [...(members ?? []), ...(exports ?? [])].map(([, member]) => member)
  const isMember = ({ name, flags }: ts.Symbol) =>
    (flags & ts.SymbolFlags.ClassMember) !== 0 && name !== 'prototype' && !name.startsWith('__')
  return declared.filter(isMember).length
}

/** A line for each main class, with its members beyond those of the main class that it extends. */
function memberLines(program: ts.Program, path: string): string[] {
  const checker = program.getTypeChecker()
  const exported = new Map(exportsOf(program, path).map(each => [each.name, each.symbol]))
  return MAIN_CLASSES.map(name => {
    const type = checker.getDeclaredTypeOfSymbol(exported.get(name)!)
    const base = MAIN_CLASSES.findLast(each => each !== name && extendsClass(type, each))
    const known =
      base === undefined ? [] : checker.getPropertiesOfType(checker.getDeclaredTypeOfSymbol(exported.get(base)!))
    const knownNames = new Set(known.map(member => member.name))
    const own = checker
      .getPropertiesOfType(type)
      .filter(member => !member.name.startsWith('__') && !knownNames.has(member.name))
    const texts = own.map(member => `${member.name}${(member.flags & ts.SymbolFlags.Method) === 0 ? '' : '()'}`)
    const intro = base === undefined ? `\`${name}\`:` : `\`${name}\`, beyond \`${base}\`:`
    return filled(
      `- ${intro} ${texts
        .sort(compare)
        .map(text => `\`${text}\``)
        .join(', ')}`,
      '  ',
    )
  })
}

function extendsClass(type: ts.Type, name: string): boolean {
  return (type.getBaseTypes() ?? []).some(base => base.symbol.name === name || extendsClass(base, name))
}

function countTable(surfaces: readonly Surface[]): string {
  const row = (name: string, each: readonly Surface[]) => {
    const sum = (count: (surface: Surface) => number) => each.reduce((total, surface) => total + count(surface), 0)
    const counts = [sum(({ values, types }) => values.length + types.length), sum(({ values }) => values.length)]
    return [name, ...counts, sum(({ shapes }) => shapes), sum(({ members }) => members)]
  }
  const rows = [...surfaces.map(surface => row(`\`${surface.specifier}\``, [surface])), row('all', surfaces)]
  const head = ['entry point', 'names', 'values', 'classes and interfaces', 'their own members']
  return [head, head.map((_, index) => (index === 0 ? '---' : '---:')), ...rows]
    .map(cells => `| ${cells.join(' | ')} |`)
    .join('\n')
}

function listed(title: string, names: readonly string[]): string {
  return names.length === 0 ? '' : filled(`${title}: ${names.map(name => `\`${name}\``).join(', ')}.`)
}

/** Text in lines of at most `COLUMNS` columns; those after the first begin with `indent`. */
function filled(text: string, indent = ''): string {
  const lines: string[] = []
  let line = ''
  for (const word of text.split(' ')) {
    if (line !== '' && line.length + 1 + word.length > COLUMNS) {
      lines.push(line)
      line = indent + word
    } else line = line === '' ? word : `${line} ${word}`
  }
  return [...lines, line].join('\n')
}

/** By code units, as everywhere: not by the language of the host. */
function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0
}

/** A program of the public types, which stand in for the compiler's declarations. */
function publicProgram(paths: readonly string[]): ts.Program {
  const options = { noEmit: true, module: ts.ModuleKind.NodeNext, target: ts.ScriptTarget.ES2022, types: ['node'] }
  const host = ts.createCompilerHost(options)
  const texts = publicTypes()
  const { readFile } = host
  host.readFile = path => texts.get(relative(BUILT, path)) ?? readFile(path)
  host.getSourceFile = (path, version) => {
    const text = host.readFile(path)
    return text === undefined ? undefined : ts.createSourceFile(path, text, version, true)
  }
  return ts.createProgram([...paths], options, host)
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const paths = Object.values(ENTRIES).map(entry => join(BUILT, entry))
  const page = apiPage(publicProgram(paths), paths)
  if (page !== readFileSync(API_PAGE, { encoding: 'utf8', flag: 'a+' })) writeFileSync(API_PAGE, page)
}
