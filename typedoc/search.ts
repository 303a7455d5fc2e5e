// What a search finds first: documents for users before members of classes that mention the same words, and a member
// of several classes once.

import { type Application, Converter, type DocumentReflection, IndexEvent, ReflectionKind } from 'typedoc'
import { sourceOf } from './project.js'

/** Documents that answer questions of users: those of the folder docs, and recipes. */
const FOR_USERS = /^docs\/(recipes\/)?[^/]+$/
/** A word in a name counts 10 times as much as one in a text, in TypeDoc; texts for users come up to that. */
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
