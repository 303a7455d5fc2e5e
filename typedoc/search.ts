// The order of a search's results: what has most of the words comes first, whole words before parts of words, documents
// for users before members of classes that mention the same words. A member of several classes comes once.

import assert from 'node:assert/strict'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import {
  type Application,
  Converter,
  type DocumentReflection,
  IndexEvent,
  ReflectionKind,
  RendererEvent,
} from 'typedoc'
import { sourceOf } from './project.js'

/** Documents that answer questions of users: those of the folder docs, and recipes. */
const FOR_USERS = /^docs\/(recipes\/)?[^/]+$/
/**
 * How much a word counts: one of a name as three of a text, one of a heading as thirty, and all of documents for users
 * four times. TypeDoc's 10, 1 and 1 put members with one of the words before documents about all of them.
 */
const WEIGHTS = { name: 3, heading: 30 }
const BOOST = 4

/** Words of questions that tell nothing. */
const COMMON =
  /^(an?|and|are|at|by|can|could|did|do|does|for|from|how|i|in|is|it|many|much|my|of|on|or|should|the|to|what|when|where|which|while|why|will|with)$/
/** The words to search for, in the browser: of a text without others, also common ones. `:`, `+`, `~` are operators. */
const WORDS = `(text=>{let all=text.toLowerCase().split(/[\\s:~^+*-]+/).filter(Boolean),told=all.filter(word=>!${COMMON}.test(word));return told.length?told:all})(i)`
/**
 * TypeDoc looks for each word of a search within words only: `of` finds `profiling`, and counts as much as `of`. Here a
 * whole word counts 9 times more, and a short one is only found at the beginning of words.
 */
const WITHIN_WORDS = 'i.split(" ").map(c=>c.length?`*$' + '{c}*`:"")'
const WHOLE_FIRST = `${WORDS}.map(c=>c+"^9 "+(c.length>3?"*":"")+c+"*")`
/** TypeDoc adds the words of a result, so that a short text with one of them may come before one with all. */
const SUM = 'c.score*=d'
const MOST_WORDS = `${SUM}*16**${WORDS}.filter(word=>Object.keys(c.matchData.metadata).some(term=>term.startsWith(word))).length`
/** TypeDoc writes its script with priority 0. */
const AFTER_ASSETS = -1

export function rankSearch(app: Application): void {
  app.converter.on(Converter.EVENT_RESOLVE_END, ({ project }) => {
    for (const document of project.getReflectionsByKind(ReflectionKind.Document) as DocumentReflection[]) {
      if (FOR_USERS.test(sourceOf(document))) document.relevanceBoost = BOOST
    }
  })
  app.renderer.on(IndexEvent.PREPARE_INDEX, fitIndex)
  app.renderer.on(RendererEvent.END, ({ outputDirectory }) => fitScript(outputDirectory), AFTER_ASSETS)
}

function fitIndex(index: IndexEvent): void {
  Object.assign(index.searchFieldWeights, WEIGHTS)
  for (let i = index.searchResults.length - 1; i >= 0; i--) {
    const result = index.searchResults[i]
    if (result.isDocument()) index.searchFields[i]['heading'] = headingsOf(result)
    else if (result.inheritedFrom?.reflection !== undefined) index.removeResult(i)
  }
}

/** The title and the headings of a document. */
function headingsOf({ name, content }: DocumentReflection): string {
  const text = content.map(part => part.text).join('')
  return [name, ...[...text.matchAll(/^#+ (.+)$/gm)].map(([, heading]) => heading)].join(' ')
}

function fitScript(outputDirectory: string): void {
  const path = join(outputDirectory, 'assets', 'main.js')
  const script = readFileSync(path, 'utf8')
  const adapted = script.replace(WITHIN_WORDS, () => WHOLE_FIRST).replace(SUM, () => MOST_WORDS)
  const isAdapted = adapted.includes(WHOLE_FIRST) && adapted.includes(MOST_WORDS)
  assert.ok(isAdapted, 'this version of TypeDoc searches in another way: adapt or drop this change')
  writeFileSync(path, adapted)
}
