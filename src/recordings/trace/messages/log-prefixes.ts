// The prefix that a log writes before each line, such as a time, a worker or a line number. It would cut a message of
// several lines. No list of logs is needed: the first line of a message and the next one begin alike, but for digits.

/** Where a message begins, with the kind of its device. */
const START = /(?:[a-z]{1,9} )?out of memory/gi
const MOST_PREFIX_LETTERS = 200
/** Behind the start: more than the longest message. It bounds the time. */
const MOST_MESSAGE_LETTERS = 12_000

/** A text, of which the lines behind the first one of a message lose their prefix. */
export function withoutPrefixes(text: string): string {
  const parts: string[] = []
  let done = 0
  for (const { index } of text.matchAll(START)) {
    if (index < done) continue
    const lineEnd = text.indexOf('\n', index)
    if (lineEnd === -1) break
    const lead = text.slice(Math.max(0, index - MOST_PREFIX_LETTERS), index)
    parts.push(text.slice(done, lineEnd + 1))
    done = lineEnd + 1
    const start = lead.slice(lead.lastIndexOf('\n') + 1)
    let prefix: string | null = null
    while (done < text.length && done - lineEnd < MOST_MESSAGE_LETTERS) {
      const next = text.indexOf('\n', done) + 1 || text.length
      const line = text.slice(done, next)
      if (line.search(START) !== -1) break
      const [shared, letters] = sharedStart(prefix ?? start, line)
      if (shared > 0) prefix ??= start.slice(0, shared)
      parts.push(shared === prefix?.length ? line.slice(letters) : line)
      done = next
    }
  }
  parts.push(text.slice(done))
  return parts.join('')
}

/**
 * The letters at the start of two lines that are the same in both, up to the end of a word; numbers and white space
 * count as the same ones.
 */
function sharedStart(one: string, other: string): readonly [ofOne: number, ofOther: number] {
  let [i, j] = [0, 0]
  let shared: readonly [number, number] = [0, 0]
  while (i < one.length && j < other.length) {
    const [run] = RUNS.filter(each => each.test(one[i]) && each.test(other[j]))
    if (run === undefined && one[i] !== other[j]) break
    do i++
    while (run?.test(one[i] ?? 'end'))
    do j++
    while (run?.test(other[j] ?? 'end'))
    if (!/\w/.test(one[i - 1])) shared = [i, j]
  }
  return shared
}

const RUNS = [/^\d$/, /^[ \t]$/]
