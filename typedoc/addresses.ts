// The addresses of pages: a document's is its path in the project, and that of a name its entry point. So links stay
// when a title changes.

import { type Application, type DocumentReflection, type Reflection, StructureRouter } from 'typedoc'
import { sourceOf } from './project.js'

export function addressPages(app: Application): void {
  app.renderer.defineRouter('paths', PathRouter)
}

class PathRouter extends StructureRouter {
  override getIdealBaseName(reflection: Reflection): string {
    if (!reflection.isDocument()) return `api/${super.getIdealBaseName(reflection)}`
    return sourceOf(reflection as DocumentReflection)
      .replace(/^docs\//, '')
      .replace(/\.(md|ts)$/, '')
  }
}
