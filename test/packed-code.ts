// Makes the code of the package small: JavaScript without the lines that hold comments only, and source maps with one
// place for each line. The TypeScript sources in the package have the comments. Run it after the compiler:
// `node dist/test/packed-code.js` shortens the compiler's output in dist.
//
// The compiler's own option removeComments takes the comments from declarations, too, and the names of constants from
// the code: `offset + 3 /* Word.units */`.

import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

import ts = require('typescript')

import { forgetBuild } from './public-types.js'

const BUILT = fileURLToPath(new URL('../src', import.meta.url))
const DIGITS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/'

/** Where a line of JavaScript comes from. Columns and lines count from 0. */
interface Place {
  /** the column in JavaScript where the first known code begins */
  readonly column: number
  readonly sourceLine: number
  readonly sourceColumn: number
}

/** Shortens all code below a folder, and its source maps. */
export function shortenCode(folder: string): void {
  for (const path of readdirSync(folder, { recursive: true, encoding: 'utf8' })) {
    if (path.endsWith('.js')) shortenFile(join(folder, path))
  }
}

function shortenFile(path: string): void {
  const code = readFileSync(path, 'utf8')
  const map = JSON.parse(readFileSync(`${path}.map`, 'utf8')) as { readonly mappings: string }
  const kept = codeLines(code)
  const places = placesOf(map.mappings)
  const lines = code.split('\n')
  writeFileSync(path, kept.map(line => lines[line]).join('\n'))
  const mappings = mappingsOf(kept.map(line => places[line]))
  writeFileSync(`${path}.map`, JSON.stringify({ ...map, names: [], mappings }))
}

/** The lines that hold code, in order, with the line for the shell and the one that names the source map. */
function codeLines(code: string): number[] {
  const options = { languageVersion: ts.ScriptTarget.ES2022, jsDocParsingMode: ts.JSDocParsingMode.ParseNone }
  const file = ts.createSourceFile('code.js', code, options)
  const lineOf = (position: number) => file.getLineAndCharacterOfPosition(position).line
  const kept = new Set<number>([lineOf(code.length)])
  if (code.startsWith('#!')) kept.add(0)
  const visit = (node: ts.Node): void => {
    const children = node.getChildren(file)
    for (const child of children) visit(child)
    if (children.length > 0) return
    for (let line = lineOf(node.getStart(file)); line <= lineOf(node.getEnd()); line++) kept.add(line)
  }
  visit(file)
  return [...kept].sort((a, b) => a - b)
}

/** The first place of each line in the mappings of a source map with one source; undefined for a line without any. */
function placesOf(mappings: string): (Place | undefined)[] {
  let sourceLine = 0
  let sourceColumn = 0
  return mappings.split(';').map(line => {
    let column = 0
    const places = line.split(',').flatMap(segment => {
      const [columns, , lines, sourceColumns] = numbersOf(segment)
      if (lines === undefined) return []
      column += columns
      sourceLine += lines
      sourceColumn += sourceColumns
      return [{ column, sourceLine, sourceColumn }]
    })
    return places[0]
  })
}

/** The opposite of `placesOf`. */
function mappingsOf(places: readonly (Place | undefined)[]): string {
  let last: Place = { column: 0, sourceLine: 0, sourceColumn: 0 }
  const lines = places.map(place => {
    if (place === undefined) return ''
    const numbers = [place.column, 0, place.sourceLine - last.sourceLine, place.sourceColumn - last.sourceColumn]
    last = place
    return numbers.map(digitsOf).join('')
  })
  return lines.join(';')
}

/** The numbers of a segment. Each digit has five bits, the lowest first; the lowest bit of a number is its sign. */
function numbersOf(segment: string): number[] {
  const numbers: number[] = []
  let value = 0
  let shift = 0
  for (const digit of segment) {
    const bits = DIGITS.indexOf(digit)
    value |= (bits & 31) << shift
    shift += 5
    if (bits > 31) continue
    numbers.push((value & 1) === 1 ? -(value >> 1) : value >> 1)
    value = shift = 0
  }
  return numbers
}

function digitsOf(number: number): string {
  let rest = number < 0 ? (-number << 1) | 1 : number << 1
  let digits = ''
  do {
    const more = rest > 31 ? 32 : 0
    digits += DIGITS[(rest & 31) | more]
    rest >>= 5
  } while (rest > 0)
  return digits
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  forgetBuild()
  shortenCode(BUILT)
}
