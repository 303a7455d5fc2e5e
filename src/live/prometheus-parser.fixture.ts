// A strict parser of Prometheus' text format 0.0.4: it refuses whatever the format does not allow.

import assert from 'node:assert/strict'

export interface Family {
  readonly type: string
  readonly samples: { readonly labels: Readonly<Record<string, string>>; readonly value: number }[]
}

const NAME = '[a-zA-Z_:][a-zA-Z0-9_:]*'
const SAMPLE = new RegExp(`^(${NAME})\\{(.*)\\} (\\S+)$`)
const LABEL = /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\["\\n])*)"(,|$)/y
const VALUE = /^(?:[+-]?(?:\d+(?:\.\d+)?(?:e[+-]?\d+)?)|\+Inf|-Inf|NaN)$/

/** The metrics of a text by name. */
export function parseMetrics(text: string): Map<string, Family> {
  assert.ok(text === '' || text.endsWith('\n'), 'the last line ends')
  const families = new Map<string, Family>()
  const seen = new Set<string>()
  let helped = ''
  let current = ''
  for (const line of text.split('\n').slice(0, -1)) {
    const help = new RegExp(`^# HELP (${NAME}) \\S.*$`).exec(line)
    const type = new RegExp(`^# TYPE (${NAME}) (gauge|counter)$`).exec(line)
    if (help !== null) {
      assert.ok(!families.has(help[1]), `${help[1]} is described once`)
      helped = help[1]
    } else if (type !== null) {
      assert.equal(type[1], helped, 'the type follows the help')
      current = type[1]
      assert.equal(type[2] === 'counter', current.endsWith('_total'), 'counters end in _total')
      families.set(current, { type: type[2], samples: [] })
    } else {
      const [, name, labelText, value] = SAMPLE.exec(line) ?? []
      assert.equal(name, current, `a sample of the family: ${line}`)
      assert.match(value, VALUE)
      assert.ok(!seen.has(`${name}{${labelText}}`), `each series comes once: ${line}`)
      seen.add(`${name}{${labelText}}`)
      const number = value === '+Inf' ? Infinity : value === '-Inf' ? -Infinity : Number(value)
      families.get(current)!.samples.push({ labels: labelsOf(labelText), value: number })
    }
  }
  return families
}

function labelsOf(text: string): Record<string, string> {
  const labels: Record<string, string> = {}
  LABEL.lastIndex = 0
  while (LABEL.lastIndex < text.length) {
    const at = LABEL.lastIndex
    const match = LABEL.exec(text)
    assert.ok(match !== null, `a label at ${at} of ${text}`)
    assert.ok(!Object.hasOwn(labels, match[1]), `each label comes once: ${text}`)
    labels[match[1]] = match[2].replace(/\\(.)/g, (_, letter) => (letter === 'n' ? '\n' : letter))
  }
  return labels
}
