// The frame of a page: the template with its parts, and the policy that refuses every other script.

import { createHash } from 'node:crypto'

/** The parts of a page. `data` is markup. */
interface PageParts {
  readonly title: string
  readonly style: string
  readonly data: string
  readonly script: string
  /** whether the page may fetch files that lie beside it; default false */
  readonly fetches?: boolean
}

/** The HTML of a page, of `viewer/page.html` as template. */
export function framed(template: string, { title, style, data, script, fetches = false }: PageParts): string {
  const parts: Readonly<Record<string, string>> = {
    policy: contentPolicy(style, script, fetches),
    title: escaped(title),
    style,
    data,
    script,
  }
  // One pass: the contents of a part are not replaced again.
  return template.replace(/\{\{(\w+)\}\}/g, (_, name: string) => parts[name])
}

/** Only the page's own script and style run. `blob:` is for the viewer's workers, and for pictures to save. */
function contentPolicy(style: string, script: string, fetches: boolean): string {
  const hash = (text: string) => `'sha256-${createHash('sha256').update(text).digest('base64')}'`
  return [
    "default-src 'none'",
    `script-src ${hash(script)}`,
    `style-src ${hash(style)}`,
    'worker-src blob:',
    'img-src blob: data:',
    ...(fetches ? ["connect-src 'self'"] : []),
    "base-uri 'none'",
    "form-action 'none'",
  ].join('; ')
}

function escaped(text: string): string {
  return text.replace(/[&<>"']/g, letter => `&#${letter.charCodeAt(0)};`)
}
