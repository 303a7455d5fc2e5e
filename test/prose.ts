// Counts phrases that make a reader read a sentence twice: fronted relative clauses, pronouns for concepts, double
// negation, and paraphrase where a term exists. Calibrated on sentences of this repository and their plain rewrites
// (`prose.test.ts`).
//   usage: node dist/test/prose.js [FILE ...]   prints each hit with its line, then hits for each hundred words

import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

/** Each pattern is one habit. Matches are counted in comments, documents, and titles of tests. */
const KNOTS: readonly RegExp[] = [
  // a sentence that begins with its object
  /(?<=^|[.:;] )(what|whose|whom|who|of which|that which|which)\b(?!.{0,120}\?)/gim,
  /\b(of|by|for|to|in|with|from|on|at|under|behind|after|before|than) (whom|whose|what)\b/gi,
  /\b(of|by|from|for) which\b(?! (is|are) (the|a|an|in|at)\b)/gi,
  /\b(who|whoever|whom) (asks?|says?|gets?|has|had|takes?|calls?|frees?|waits?|needs?|wants?|uses?|dies|made|makes|closes?|comes?)\b/gi,
  /\b(nobody|somebody|anybody|no one|someone)\b/gi,
  /\b(is|are|was|were|be|been) (had|told|said to have|asked for|told of)\b/gi,
  /\b(mostly|as far as|say,? for|so to speak|by itself)\b/gi,
  /\b(that|those|this|these) (of|by|in|for|from|with) (it|them|that|which|another|others|the other)\b/gi,
  /\b(the other one|the others do|another one|the one|such a one|that one)\b/gi,
  /\b(none|not|nothing|no \w+) (where|but|unless|without|else|that is not)\b/gi,
  /\b(where|if|when) (none|not|nothing|there is none|that is not|it is not)\b/gi,
  /\b(so many|so much|so few|so long as|as many as|as much as|no more than|no less than)\b/gi,
  /\b(is|are|was|were) (nothing|none|no|nobody'?s)\b/gi,
  /\bthe engine\b/gi,
  /\b(does|do|did) (so|that|the same|not so)\b/gi,
]

/** The prose of a file, a paragraph or a comment at a time, with the line on which it begins. */
export function proseOf(path: string, text: string): { line: number; text: string }[] {
  return path.endsWith('.md') ? paragraphs(text) : comments(text)
}

function paragraphs(text: string): { line: number; text: string }[] {
  const blank = (code: string) => code.replace(/[^\n]/g, ' ')
  const lines = text
    .replace(/```[\s\S]*?```/g, blank)
    .replace(/`[^`\n]*`/g, 'code')
    .split('\n')
  return gather(
    lines.map(line => (/^\s*$|^#|^\|[-: |]+$/.test(line) ? null : line.replace(/^\s*([-*>]|\d+\.) |\|/g, '. '))),
  )
}

function comments(text: string): { line: number; text: string }[] {
  let isInside = false
  return gather(
    text.split('\n').map(line => {
      const title = /\b(?:it|test|describe)\(\s*['"`](.*?)['"`]\s*,/.exec(line)?.[1]
      if (title !== undefined) return `${title}.`
      const begins = /^\s*\/\*\*?(.*)$/.exec(line)
      if (begins !== null) isInside = true
      const own = isInside ? line.replace(/^\s*(\/\*\*?|\*(?!\/))/, '') : /(?:^|\s)\/\/ ?(.*)$/.exec(line)?.[1]
      if (isInside && line.includes('*/')) isInside = false
      return own === undefined ? null : own.replace('*/', '.').replace(/`[^`]*`/g, 'code')
    }),
  )
}

/** Joins neighbouring lines of prose. */
function gather(lines: readonly (string | null)[]): { line: number; text: string }[] {
  const found: { line: number; text: string }[] = []
  let last = -1
  for (const [index, line] of lines.entries()) {
    if (line === null) continue
    if (index === last + 1 && found.length > 0) found[found.length - 1].text += ` ${line.trim()}`
    else found.push({ line: index + 1, text: line.trim() })
    last = index
  }
  return found
}

export function knotsIn(text: string): string[] {
  return KNOTS.flatMap(knot => [...text.matchAll(knot)].map(match => match[0]))
}

export function wordsIn(text: string): number {
  return text.match(/[a-z][\w'’-]*/gi)?.length ?? 0
}

/** Files whose prose is counted: all that are written here, except recorded results. */
export function proseFiles(): string[] {
  return execFileSync('git', ['ls-files', '*.ts', '*.md', '*.cu', '*.cuh'], { encoding: 'utf8' })
    .trim()
    .split('\n')
    .filter(path => !/^bench\/results\//.test(path))
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const paths = process.argv.slice(2)
  let [words, knots] = [0, 0]
  const rates: [number, string][] = []
  for (const path of paths.length > 0 ? paths : proseFiles()) {
    let [ownWords, ownKnots] = [0, 0]
    for (const { line, text } of proseOf(path, readFileSync(path, 'utf8'))) {
      ownWords += wordsIn(text)
      const found = knotsIn(text)
      ownKnots += found.length
      if (paths.length > 0)
        for (const knot of found) console.log(`${path}:${line}: "${knot}" in: ${text.slice(0, 300)}`)
    }
    rates.push([
      ownKnots,
      `${((100 * ownKnots) / ownWords).toFixed(2).padStart(6)} ${String(ownKnots).padStart(5)} ${path}`,
    ])
    words += ownWords
    knots += ownKnots
  }
  if (paths.length === 0) for (const [, line] of rates.sort((a, b) => b[0] - a[0]).slice(0, 80)) console.log(line)
  console.log(`${knots} knots in ${words} words: ${((100 * knots) / words).toFixed(2)} for each hundred`)
}
