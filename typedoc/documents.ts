// The documents: examples as pages, the titles of all, and their groups and order in the navigation. Both follow from
// folders and links, so that a new document needs no entry here.

import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import {
  type Application,
  Converter,
  DocumentReflection,
  type NormalizedPath,
  type ProjectReflection,
  ReflectionKind,
} from 'typedoc'
import { PROJECT, sourceOf } from './project.js'
import { REFERENCE } from './reference.js'

const EXAMPLES = 'Examples'
/** The group of a document; the first pattern decides. */
const GROUPS: readonly (readonly [RegExp, string])[] = [
  [/^docs\/(out-of-memory-in-pytorch|recordings|report|check|metrics)\.md$/, 'PyTorch out of memory'],
  [/^(bench\/|docs\/(internals\/)?measured\.md$)/, 'Benchmarks'],
  [/^docs\/api\.md$/, REFERENCE],
  [/^docs\/recipes\//, 'Recipes'],
  [/^examples\//, EXAMPLES],
  [/^(src\/|docs\/(internals\/|(decisions|driver-facts|v8|walkthrough)\.md))/, 'Internals'],
  [/^docs\//, 'Guide'],
  [/^/, 'Project'],
]
/** Pages whose links say the order of documents. */
const INDEXES = ['README.md', 'docs/recipes/README.md', 'docs/internals/README.md', 'src/README.md']

export function arrangeDocuments(app: Application): void {
  app.converter.on(Converter.EVENT_CREATE_PROJECT, (_, project) => addExamples(project))
  app.converter.on(Converter.EVENT_RESOLVE_BEGIN, ({ project }) => {
    for (const document of documentsOf(project)) {
      const source = sourceOf(document)
      document.name = titleOf(document) ?? document.name
      document.frontmatter['group'] = GROUPS.find(([pattern]) => pattern.test(source))![1]
    }
  })
  app.converter.on(Converter.EVENT_RESOLVE_END, ({ project }) => order(project), -1000)
}

function documentsOf(project: ProjectReflection): DocumentReflection[] {
  return project.getReflectionsByKind(ReflectionKind.Document) as DocumentReflection[]
}

/** The heading of a document, up to a colon: the navigation is narrow. */
function titleOf({ content }: DocumentReflection): string | undefined {
  const heading = /^# (.*)$/m.exec(content.map(({ text }) => text).join(''))?.[1]
  return heading?.replaceAll('`', '').split(': ')[0]
}

/** Makes a page of each example, which documents link to. */
function addExamples(project: ProjectReflection): void {
  for (const file of readdirSync(join(PROJECT, 'examples')).sort()) {
    const path = join(PROJECT, 'examples', file)
    const text = `# ${file}\n\n\`\`\`ts\n${readFileSync(path, 'utf8')}\`\`\`\n`
    const page = new DocumentReflection(file, project, [{ kind: 'text', text }], {})
    project.addChild(page)
    project.registerReflection(page, undefined, path as NormalizedPath)
  }
}

/** Sorts the documents of each group by the first link to them; those without one come last. */
function order(project: ProjectReflection): void {
  const ranks = linked()
  const rankOf = (source: string) => (basename(source) === 'README.md' ? -1 : (ranks.get(source) ?? ranks.size))
  for (const { children } of project.groups ?? []) {
    const sorted = children.toSorted((a, b) => {
      if (!(a instanceof DocumentReflection && b instanceof DocumentReflection)) return 0
      return rankOf(sourceOf(a)) - rankOf(sourceOf(b))
    })
    children.splice(0, children.length, ...sorted)
  }
}

/** The place of each linked file among the links of the index pages. */
function linked(): Map<string, number> {
  const ranks = new Map<string, number>()
  for (const index of INDEXES.filter(path => existsSync(join(PROJECT, path)))) {
    for (const [, target] of readFileSync(join(PROJECT, index), 'utf8').matchAll(/\]\(([\w./-]+)/g)) {
      const path = join(dirname(index), target)
      if (!ranks.has(path)) ranks.set(path, ranks.size)
    }
  }
  return ranks
}
