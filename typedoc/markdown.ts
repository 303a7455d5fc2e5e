// Changes to Markdown before TypeDoc shows it: diagrams become pictures, wide tables scroll, and code in headings
// counts.

import { renderMermaidSVG } from 'beautiful-mermaid'
import { Application } from 'typedoc'

/** The parts of markdown-it, TypeDoc's parser, that are used here. */
interface Token {
  readonly type: string
  tag: string
  readonly info: string
  readonly content: string
  children: Token[] | null
}
type Rule = (tokens: Token[], index: number, ...rest: unknown[]) => string
interface Parser {
  readonly renderer: { readonly rules: Record<string, Rule> }
  readonly core: { readonly ruler: { push(name: string, rule: (state: { tokens: Token[] }) => void): void } }
}

export function fitMarkdown(app: Application): void {
  // Options that are set before the end of the start are read anew from the file.
  app.on(Application.EVENT_BOOTSTRAP_END, () => app.options.setValue('markdownItLoader', fit))
}

function fit({ renderer: { rules }, core }: Parser): void {
  const { fence } = rules
  rules['fence'] = (tokens, index, ...rest) => {
    const { info, content } = tokens[index]
    return info.trim() === 'mermaid' ? diagram(content) : fence(tokens, index, ...rest)
  }
  rules['table_open'] = () => '<div class="scroll" tabindex="0"><table>\n'
  rules['table_close'] = () => '</table></div>\n'
  core.ruler.push('code-in-headings', ({ tokens }) => keepCode(tokens))
  core.ruler.push('empty-headers', ({ tokens }) => keepHeaders(tokens))
}

/** A diagram in the colours of the page; the font that the library would load from elsewhere is left out. */
function diagram(text: string): string {
  const [bg, fg] = ['var(--color-background)', 'var(--color-text)']
  const svg = renderMermaidSVG(text, { bg, fg, muted: fg, transparent: true })
    .replace(/@import url\([^)]*\);/, '')
    .replaceAll("'Inter', ", '')
  return `<div class="scroll diagram" tabindex="0">${svg}</div>\n`
}

/** TypeDoc leaves code out of the anchor and the name of a heading, unless it finds text below it. */
function keepCode(tokens: readonly Token[]): void {
  for (const [index, { type }] of tokens.entries()) {
    if (type !== 'heading_open') continue
    for (const child of tokens[index + 1].children ?? []) {
      if (child.type === 'code_inline') child.children = [{ ...child, type: 'text' }]
    }
  }
}

/** To readers of screens, the head of a column without a name is an ordinary cell. */
function keepHeaders(tokens: readonly Token[]): void {
  for (const [index, { type }] of tokens.entries()) {
    if (type !== 'th_open' || tokens[index + 1].content !== '') continue
    for (const token of tokens.slice(index, index + 3)) if (token.tag === 'th') token.tag = 'td'
  }
}
