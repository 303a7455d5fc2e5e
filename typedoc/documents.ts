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
  [/^examples(\/|$)/, 'Examples'],
  [/^bench\/|\/(benchmarks|measured)\.md$/, 'Benchmarks'],
  [/^docs\/api\.md$/, REFERENCE],
  [/^(docs\/internals|src)\//, 'Internals'],
  [/^[^/]*$/, 'Project'],
]
const EXAMPLES = 'examples'
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

/** Makes a page of each example, and one of their folder, which documents link to. */
function addExamples(project: ProjectReflection): void {
  const folder = join(PROJECT, EXAMPLES)
  const add = (name: string, text: string, ...paths: string[]) => {
    const page = new DocumentReflection(name, project, [{ kind: 'text', text }], {})
    project.addChild(page)
    project.registerReflection(page, undefined, paths[0] as NormalizedPath)
    for (const path of paths) project.files.registerReflectionPath(path as NormalizedPath, page)
  }
  const items: string[] = []
  for (const file of readdirSync(folder).sort()) {
    const code = readFileSync(join(folder, file), 'utf8')
    const [, comment = ''] = /^((?:\/\/ .*\n)*)/.exec(code) ?? []
    const [about] = comment
      .replaceAll(/^\/\/ |\n$/gm, '')
      .replaceAll('\n', ' ')
      .split(/(?<=\.) |(?<=\.)$|In a clone/)
    items.push(`- [${file}](${EXAMPLES}/${file.replace(/\.ts$/, '.html')})${about === '' ? '' : `: ${about}`}`)
    add(file, `# ${file}\n\n\`\`\`ts\n${code}\`\`\`\n`, join(folder, file))
  }
  const intro = 'Programs to copy. In a clone, `npm run build` compiles them to dist/examples.'
  add('Examples', `# Examples\n\n${intro}\n\n${items.join('\n')}\n`, folder, `${folder}/`)
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
    const parts = readFileSync(join(PROJECT, index), 'utf8').matchAll(/^## (.*)$|\[([^\]]+)\]\(([\w./-]+\.md)\)/gm)
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
  const rankOf = (source: string) =>
    INDEXES.includes(source) || source === EXAMPLES ? -1 : (entries.get(source)?.rank ?? entries.size)
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
