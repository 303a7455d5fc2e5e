// The documents: examples as pages, and the titles, groups and order of all in the navigation. The index pages say
// them: a group is a heading of docs/README.md, and a title the text of a link. So a new document needs no entry here.

import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import {
  type Application,
  Converter,
  DefaultTheme,
  DocumentReflection,
  type NavigationElement,
  type NormalizedPath,
  type ProjectReflection,
  ReflectionKind,
} from 'typedoc'
import { PROJECT, sourceOf } from './project.js'
import { REFERENCE } from './reference.js'

/** TypeDoc shows the pages of this group above all groups. */
const NO_GROUP = 'none'
/** The groups of documents that no heading of the index says; the first pattern decides. */
const GROUPS: readonly (readonly [RegExp, string])[] = [
  [/^docs\/recipes\//, 'Recipes'],
  [/^examples\//, 'Examples'],
  [/^bench\/|\/(benchmarks|measured)\.md$/, 'Benchmarks'],
  [/^docs\/api\.md$/, REFERENCE],
  [/^(docs\/internals|src)\//, 'Internals'],
  [/^[^/]*$/, 'Project'],
]
const INDEXES = ['docs/README.md', 'docs/recipes/README.md', 'docs/internals/README.md', 'src/README.md']

export function arrangeDocuments(app: Application): void {
  app.converter.on(Converter.EVENT_CREATE_PROJECT, (_, project) => addExamples(project))
  app.converter.on(Converter.EVENT_RESOLVE_BEGIN, ({ project }) => {
    const entries = readIndexes()
    for (const document of documentsOf(project)) {
      const source = sourceOf(document)
      const entry = entries.get(source)
      document.name = headingOf(document) ?? document.name
      const ofFolder = GROUPS.find(([pattern]) => pattern.test(source))?.[1]
      document.frontmatter['group'] = ofFolder ?? entry?.heading ?? NO_GROUP
    }
  })
  app.converter.on(Converter.EVENT_RESOLVE_END, ({ project }) => order(project), -1000)
  app.renderer.defineTheme('short-titles', ShortTitles)
}

/** Shows the titles of the index pages in the navigation, which is narrow; searches and pages have whole headings. */
class ShortTitles extends DefaultTheme {
  override buildNavigation(project: ProjectReflection): NavigationElement[] {
    const entries = readIndexes()
    const titles = new Map(
      documentsOf(project).map(document => [this.router.getFullUrl(document), entries.get(sourceOf(document))?.title]),
    )
    const shortened = (element: NavigationElement): NavigationElement => ({
      ...element,
      text: titles.get(element.path ?? '') ?? element.text,
      ...(element.children === undefined ? {} : { children: element.children.map(shortened) }),
    })
    return super.buildNavigation(project).map(shortened)
  }
}

function documentsOf(project: ProjectReflection): DocumentReflection[] {
  return project.getReflectionsByKind(ReflectionKind.Document) as DocumentReflection[]
}

function headingOf({ content }: DocumentReflection): string | undefined {
  const heading = /^# (.*)$/m.exec(content.map(({ text }) => text).join(''))?.[1]
  return heading?.replaceAll('`', '')
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

/** The place, text and heading of the first link to a document in an index page. */
interface Entry {
  readonly rank: number
  readonly title: string
  readonly heading: string | undefined
}

function readIndexes(): Map<string, Entry> {
  const entries = new Map<string, Entry>()
  for (const index of INDEXES.filter(path => existsSync(join(PROJECT, path)))) {
    let heading: string | undefined
    const parts = readFileSync(join(PROJECT, index), 'utf8').matchAll(/^## (.*)$|\[([^\]]+)\]\(([\w./-]+)\)/gm)
    for (const [, found, title, target] of parts) {
      heading = found ?? heading
      if (found !== undefined) continue
      const path = join(dirname(index), target)
      const text = `${title[0].toUpperCase()}${title.slice(1)}`
      if (!entries.has(path)) entries.set(path, { rank: entries.size, title: text, heading })
    }
  }
  return entries
}

/** Orders groups, and the documents in them, as the index pages do; pages that these do not name come last. */
function order(project: ProjectReflection): void {
  const entries = readIndexes()
  const rankOf = (source: string) => (INDEXES.includes(source) ? -1 : (entries.get(source)?.rank ?? entries.size))
  const titles = [NO_GROUP, ...[...entries.values()].map(({ heading }) => heading), ...GROUPS.map(([, title]) => title)]
  project.groups?.sort((a, b) => titles.indexOf(a.title) - titles.indexOf(b.title))
  for (const { children } of project.groups ?? []) {
    const sorted = children.toSorted((a, b) => {
      if (!(a instanceof DocumentReflection && b instanceof DocumentReflection)) return 0
      return rankOf(sourceOf(a)) - rankOf(sourceOf(b))
    })
    children.splice(0, children.length, ...sorted)
  }
}
