// Writes docs/command-line.schema.json from the types of src/cli/answers.ts and their docstrings. Run it after the
// compiler: `node dist/test/answers-schema.js`. A test compares the document with the types.

import { writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { createGenerator, type Definition } from 'ts-json-schema-generator'
import { REPORT_SCHEMA_VERSION } from '../src/recordings/report/export/report-json.js'

export const SCHEMA_PAGE = fileURLToPath(new URL('../../docs/command-line.schema.json', import.meta.url))
const path = (name: string) => fileURLToPath(new URL(`../../${name}`, import.meta.url))

/** The document as text: each kind of answer is a definition of that name. */
export function answersSchema(): string {
  const options = { jsDoc: 'extended', additionalProperties: true, skipTypeCheck: true, topRef: false } as const
  const generator = createGenerator({
    path: path('src/cli/answers.ts'),
    tsconfig: path('tsconfig.json'),
    type: 'Answers',
    sortProps: false,
    ...options,
  })
  const { properties = {}, definitions = {} } = generator.createSchema('Answers')
  const all = definitions as Record<string, Definition>
  const kinds = Object.entries(properties).map(([kind, value]) => {
    const { $ref, ...own } = value as Definition
    const facts = $ref === undefined ? own : all[$ref.replace('#/definitions/', '')]
    const schemaVersion = { const: REPORT_SCHEMA_VERSION, description: 'the version of this schema' }
    const begin = { schemaVersion, kind: { const: kind, description: 'the kind of answer' } }
    const required = ['schemaVersion', 'kind', ...(facts.required ?? [])]
    return [kind, { ...facts, properties: { ...begin, ...facts.properties }, required }] as const
  })
  // Those that only became kinds are left out.
  const text = JSON.stringify([kinds, all])
  const others = Object.entries(all).filter(([name]) => text.includes(`"#/definitions/${name}"`))
  return `${JSON.stringify(
    {
      $schema: 'http://json-schema.org/draft-07/schema#',
      title: 'The answers of cuda-mempool as JSON',
      description:
        'What the commands print with --json. The version rises when a name goes or changes its meaning; new names ' +
        'may come without. docs/metrics.md defines the figures of a replay.',
      oneOf: kinds.map(([kind]) => ({ $ref: `#/definitions/${kind}` })),
      definitions: { ...Object.fromEntries(kinds), ...Object.fromEntries(others) },
    },
    null,
    1,
  )}\n`
}

if (process.argv[1] === fileURLToPath(import.meta.url)) writeFileSync(SCHEMA_PAGE, answersSchema())
