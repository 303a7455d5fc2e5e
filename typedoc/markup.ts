// Changes to TypeDoc's markup: readers of screens get names of the parts of a page, and headings without gaps. Links to
// the first page name its file, since a browser shows a folder as a list of files. Documents have no trail, which would
// only repeat the heading.

import { type Application, PageEvent } from 'typedoc'

const LANDMARKS: readonly (readonly [part: string, attributes: string])[] = [
  ['col-content', 'role="main"'],
  ['page-menu', 'role="region" aria-label="Page"'],
  ['site-menu', 'role="region" aria-label="Site"'],
]

const TRAIL = /<ul class="tsd-breadcrumb".*?<\/ul>/s

export function fitMarkup(app: Application): void {
  app.renderer.on(PageEvent.END, page => {
    const named = LANDMARKS.reduce(
      (html, [part, attributes]) => html.replace(`<div class="${part}"`, `<div ${attributes} class="${part}"`),
      page.contents ?? '',
    )
    const trailless = page.isReflectionEvent() && page.model.isDocument() ? named.replace(TRAIL, '') : named
    page.contents = levelled(trailless).replace(/href="(\.\/|(?:\.\.\/)+)(?=[#"])/g, 'href="$1index.html')
  })
}

/** A heading is at most a level below the heading before it. */
function levelled(html: string): string {
  let last = 0
  return html.replace(/<h([1-6])(?=[ >])/g, (tag, digit: string) => {
    const level = Math.min(Number(digit), last + 1)
    last = level
    return level === Number(digit) ? tag : `${tag} aria-level="${level}"`
  })
}
