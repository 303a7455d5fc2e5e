// The text of PYTORCH_CUDA_ALLOC_CONF, taken apart as PyTorch's tokenizer does it: blanks mean nothing, commas separate
// settings, and those of a list in brackets separate nothing.

/** One setting of a text. */
export interface Part {
  readonly name: string
  /** the text behind the first colon; null without a colon */
  readonly value: string | null
  /** the whole setting, without blanks */
  readonly written: string
}

/** Some files of variables leave them in the text. PyTorch takes none. */
export const QUOTES = /["']/g
const LIST_OR_COMMA = /\[[^[\]]*\]|,/g

/** The settings of a text. A comma at its end is passed over, as in PyTorch. */
export function partsOf(text: string): Part[] {
  const bare = text.replaceAll(/\s/g, '')
  const parts: Part[] = []
  let start = 0
  for (const { 0: found, index } of bare.matchAll(LIST_OR_COMMA)) {
    if (found !== ',') continue
    parts.push(partOf(bare.slice(start, index)))
    start = index + 1
  }
  return start === bare.length ? parts : [...parts, partOf(bare.slice(start))]
}

function partOf(written: string): Part {
  const [name] = written.split(/[:=]/, 1)
  return { name, value: name.length === written.length ? null : written.slice(name.length + 1), written }
}
