// The order of a search's results: documents for users come before members of classes that mention the same words, and
// a member of several classes comes once.

import { type Application, Converter, type DocumentReflection, IndexEvent, ReflectionKind } from 'typedoc'
import { sourceOf } from './project.js'

/** Documents that answer questions of users: those of the folder docs, and recipes. */
const FOR_USERS = /^docs\/(recipes\/)?[^/]+$/
/** TypeDoc counts a word in a name 10 times, and a word in a text once; a word in a text for users counts as much. */
const BOOST = 10

export function rankSearch(app: Application): void {
  app.converter.on(Converter.EVENT_RESOLVE_END, ({ project }) => {
    for (const document of project.getReflectionsByKind(ReflectionKind.Document) as DocumentReflection[]) {
      if (FOR_USERS.test(sourceOf(document))) document.relevanceBoost = BOOST
    }
  })
  app.renderer.on(IndexEvent.PREPARE_INDEX, index => {
    for (let i = index.searchResults.length - 1; i >= 0; i--) {
      const result = index.searchResults[i]
      if (result.isDeclaration() && result.inheritedFrom?.reflection !== undefined) index.removeResult(i)
    }
  })
}
