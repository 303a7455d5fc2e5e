// The outputs of `check`: text, Markdown and JUnit XML, also for hostile names.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { marked, type Token, type Tokens } from 'marked'
import { MiB } from '../../../core/base/bytes.js'
import { type HeldBlock, holding } from '../../trace/analysis/run-growth.fixture.js'
import { growthOf } from '../../trace/analysis/run-growth.js'
import type { Trace } from '../../trace/trace.js'
import { PLAIN } from '../table.js'
import { checkText } from './check-text.js'
import type { Checked } from './check-words.js'
import { checkJunit } from './junit.js'
import { checkMarkdown } from './markdown.js'

const checked = (base: Trace, run: Trace): Checked => ({ base, run, growth: growthOf(base, run, { percent: 2 }) })

const BASE = holding([[100 * MiB, 'model.py:7 forward']], { file: 'base.pickle', reservedBytes: 120 * MiB })
const LEAKING = holding(
  [
    [104 * MiB, 'model.py:7 forward'],
    [6 * MiB, 'train.py:30 step'],
  ],
  { reservedBytes: 122 * MiB, failed: [[200 * MiB, 'model.py:9 loss']] },
)
const HOSTILE = '|a`b``<img src=x>\n\r\x1b[2J]]>&amp;"\'*_[x](mailto:a.b)@me www.a.b \\| $x$ \ud800 \ufffe\u202e{{x}}~~'
/** As the outputs show it. */
const HOSTILE_SHOWN = '|a`b``<img src=x>???[2J]]>&amp;"\'*_[x](mailto:a.b)@me www.a.b \\| $x$ ? \ufffe?{{x}}~~'

test('the text begins with the verdict, and names the call sites that grew', () => {
  const lines = checkText(checked(BASE, LEAKING), { width: 80, paint: PLAIN }).split('\n')
  assert.match(lines[0], /^Failed: run\.pickle against base\.pickle, growth up to 2 % allowed\.$/)
  const text = lines.join('\n')
  assert.match(
    text,
    /^Memory in use at the peak grew by more than 2 %: from 100 MiB to 110 MiB,\s\+10 MiB \(\+10 %\)\.$/m,
  )
  assert.match(text, /^A request failed, and none in the base: 200 MiB asked by model\.py:9 loss \(event\s3\)\.$/m)
  assert.match(text, /^peak in use +100 MiB +110 MiB +\+10 MiB \(\+10 %\) +2 MiB +failed$/m)
  assert.match(text, /^peak reserved +120 MiB +122 MiB +\+2 MiB \(\+1\.67 %\) +2\.4 MiB +passed$/m)
  assert.match(
    text,
    /peak:\n {2}\+6 MiB {2}train\.py:30 step \(new\)\n {2}\+4 MiB {2}model\.py:7 forward \(grown from 100 MiB\)\n/,
  )
  for (const line of lines) assert.ok(line.length <= 80, line)
})

test('a run that did not grow is one line of verdict', () => {
  assert.match(checkText(checked(BASE, BASE), { width: 80, paint: PLAIN }), /^Passed: .*\nNo memory grew\.\n\n/)
})

test('notes name each difference of the recordings', () => {
  const base = holding([[MiB, 'a.py:1 f']], { device: 1, recorder: 'RMM', failed: [[MiB]] })
  const run = holding([[MiB, 'a.py:1 f']], {
    settings: 'max_split_size_mb:64',
    otherDevices: [{ device: 3, events: 9 }],
  })
  const text = checkText(checked(base, run), { width: 300, paint: PLAIN })
  for (const note of [
    'Different devices: GPU 1 in the base, GPU 0 in the run.',
    'Different allocators were recorded: RMM in the base, PyTorch in the run.',
    "The allocator's settings differ: unknown in the base, 'max_split_size_mb:64' in the run.",
    'The base has no segments, so reserved memory is not compared.',
    'Requests failed in the base, so its peaks are those of memory that ran out, and failures are not compared.',
    'Run: These are the events of GPU 0; GPU 3 has 9. --gpu N chooses.',
  ]) {
    assert.ok(text.includes(`\n${note}`), `${note}\n${text}`)
  }
})

/** All tokens of Markdown, those within others too. */
function tokensOf(token: Token): Token[] {
  const cells =
    token.type === 'table' ? [token as Tokens.Table].flatMap(({ header, rows }) => [header, ...rows].flat()) : []
  const inner = [...((token as Tokens.Generic).tokens ?? []), ...cells.flatMap(({ tokens }) => tokens)]
  return [token, ...inner.flatMap(tokensOf)]
}

test('in Markdown no name makes structure, and each is shown whole', () => {
  const blocks = Array.from({ length: 60 }, (_, i): HeldBlock => [MiB * (i + 3), `${HOSTILE}:${i + 1} ${HOSTILE}`])
  const run = holding(blocks, {
    file: `- https://a.b ${HOSTILE}`,
    settings: HOSTILE,
    failed: [[MiB, `${HOSTILE}:1 ${HOSTILE}`]],
  })
  const markdown = checkMarkdown(checked(BASE, run))
  const tokens = marked.lexer(markdown, { gfm: true }).flatMap(tokensOf)
  const types = new Set(tokens.map(({ type }) => type))
  const usual = ['heading', 'text', 'space', 'paragraph', 'html', 'table', 'blockquote', 'escape']
  assert.deepEqual(
    [...types].filter(type => !usual.includes(type)),
    [],
  )
  assert.deepEqual(new Set(tokens.filter(({ type }) => type === 'html').map(({ raw }) => raw)), new Set(['<br>']))
  const tables = tokens.filter((token): token is Tokens.Table => token.type === 'table')
  assert.deepEqual(
    tables.map(({ header, rows }) => [header.length, rows.length]),
    [
      [6, 3],
      [3, 20],
    ],
  )
  const site = tables[1].rows[0][0].text.replace(/&#(\d+);/g, (_, code) => String.fromCharCode(Number(code)))
  assert.ok(site.endsWith(`:60 ${HOSTILE_SHOWN}`), site)
  assert.ok(tokens.some(({ raw }) => raw.includes('https&#58;//')))
})

test('the Markdown of the longest names has at most 64 KiB', () => {
  const long = '|'.repeat(5000)
  const blocks = Array.from(
    { length: 60 },
    (_, i): HeldBlock => [MiB * (i + 3), `/lib/site-packages/torch/${long}.py:1 ${long}`, `${long}${i}.py:1 ${long}`],
  )
  const origin = { file: long, settings: long, recorder: 'RMM', skippedEvents: 5, device: 3 } as const
  const run = holding(blocks, { ...origin, failed: [[MiB, `${long}:1 ${long}`]], reservedBytes: 2 ** 40 })
  const markdown = checkMarkdown(checked(BASE, run))
  assert.ok(Buffer.byteLength(markdown) > 10_000 && Buffer.byteLength(markdown) <= 65_536, `${markdown.length}`)
})

/** Throws unless a text is well-formed XML; returns its elements as [name, attributes, text]. */
function elementsOf(xml: string): { name: string; attributes: Map<string, string>; text: string }[] {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these are not allowed in XML
  assert.doesNotMatch(xml, /[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\p{Cs}]/u)
  const decoded = (text: string) => {
    assert.doesNotMatch(text, /<|\]\]>|&(?!#\d+;)/)
    return text.replace(/&#(\d+);/g, (_, code) => String.fromCharCode(Number(code)))
  }
  const elements: ReturnType<typeof elementsOf> = []
  const open: typeof elements = []
  const body = xml.replace(/^<\?xml version="1\.0" encoding="UTF-8"\?>\n/, '')
  for (const [whole, close, name, given, empty, text] of body.matchAll(
    /<(\/?)([a-z-]+)((?: [a-z]+="[^"<]*")*)(\/?)>|([^<]+)|</g,
  )) {
    if (text !== undefined) {
      if (open.length > 0) open.at(-1)!.text += decoded(text)
      else assert.equal(text, '\n')
    } else if (close === '/') assert.equal(open.pop()?.name, name)
    else {
      assert.notEqual(whole, '<', xml)
      const attributes = new Map(
        [...given.matchAll(/ ([a-z]+)="([^"]*)"/g)].map(([, key, value]) => [key, decoded(value)]),
      )
      const element = { name, attributes, text: '' }
      elements.push(element)
      if (empty === '') open.push(element)
    }
  }
  assert.equal(open.length, 0)
  return elements
}

test('JUnit XML has a test case for each figure, and a failure names the call sites', () => {
  const elements = elementsOf(checkJunit(checked(BASE, LEAKING)))
  const [, suite] = elements
  assert.deepEqual(
    ['tests', 'failures', 'errors', 'skipped'].map(name => suite.attributes.get(name)),
    ['3', '2', '0', '0'],
  )
  const cases = elements.filter(({ name }) => name === 'testcase').map(({ attributes }) => attributes.get('name'))
  assert.deepEqual(cases, ['memory in use at the peak', 'memory reserved at the peak', 'failed requests'])
  const failures = elements.filter(({ name }) => name === 'failure')
  assert.match(failures[0].attributes.get('message')!, /^Memory in use at the peak grew by more than 2 %/)
  assert.match(failures[0].text, /^\+6 MiB train\.py:30 step \(new\)\n/)
  const skipped = elementsOf(checkJunit(checked(holding([[MiB]]), holding([[MiB]]))))
  assert.equal(skipped.filter(({ name }) => name === 'skipped').length, 1)
})

test('JUnit XML is well-formed whatever a name has', () => {
  const names = { file: HOSTILE, settings: HOSTILE }
  const run = holding([[200 * MiB, `${HOSTILE}:1 ${HOSTILE}`]], { ...names, failed: [[MiB, `${HOSTILE}:1 f`]] })
  const elements = elementsOf(checkJunit(checked(BASE, run)))
  const failure = elements.find(({ name }) => name === 'failure')!
  const name = HOSTILE_SHOWN.replace('\ufffe', '?')
  assert.ok(failure.text.includes(`${name.slice(0, 20)}`) && failure.text.includes(`:1 ${name} (new)\n`), failure.text)
})
