// Links from documents to the reference: the first code span of a document with an exported name, and in the list of
// all names each one, with the members of classes.

import type { DeclarationReflection, ProjectReflection } from 'typedoc'
import { type Application, type CommentDisplayPart, Converter, type DocumentReflection, ReflectionKind } from 'typedoc'
import { sourceOf } from './project.js'

const ALL_NAMES = 'docs/api.md'

export function linkNames(app: Application): void {
  app.converter.on(Converter.EVENT_RESOLVE_END, ({ project }) => {
    const names = exportedNames(project)
    for (const document of project.getReflectionsByKind(ReflectionKind.Document) as DocumentReflection[]) {
      const targetOf = sourceOf(document) === ALL_NAMES ? namesAndMembers(names) : firstNames(names)
      document.content = document.content.map((part, index, parts) => {
        const name = part.kind === 'code' ? /^`(\w+)(?:\(\))?`$/.exec(part.text)?.[1] : undefined
        if (name === undefined || isLinked(parts, index)) return part
        const target = targetOf(name, parts[index - 1]?.text ?? '')
        const text = part.text.slice(1, -1)
        return target === undefined ? part : { kind: 'inline-tag', tag: '@linkcode', text, target }
      })
    }
  })
}

type TargetOf = (name: string, before: string) => DeclarationReflection | undefined

function exportedNames(project: ProjectReflection): Map<string, DeclarationReflection> {
  const modules = project.getReflectionsByKind(ReflectionKind.Module) as DeclarationReflection[]
  return new Map(modules.flatMap(({ children }) => children ?? []).map(child => [child.name, child]))
}

/** Whether a code span is the text of a link, or of a heading. */
function isLinked(parts: readonly CommentDisplayPart[], index: number): boolean {
  const before = parts
    .slice(0, index)
    .map(({ text }) => text)
    .join('')
  const line = before.slice(before.lastIndexOf('\n') + 1)
  return line.startsWith('#') || line.lastIndexOf('[') > line.lastIndexOf(']')
}

function firstNames(names: ReadonlyMap<string, DeclarationReflection>): TargetOf {
  const seen = new Set<string>()
  return name => {
    if (seen.has(name)) return undefined
    seen.add(name)
    return names.get(name)
  }
}

/** Members follow the name of their class, which begins an item of a list. */
function namesAndMembers(names: ReadonlyMap<string, DeclarationReflection>): TargetOf {
  let owner: DeclarationReflection | undefined
  return (name, before) => {
    if (before.endsWith('\n- ')) owner = names.get(name)
    return names.get(name) ?? owner?.children?.find(child => child.name === name)
  }
}
