// What readers of screens need beyond TypeDoc's markup: names of the parts of a page, and headings without gaps.

import { type Application, PageEvent } from 'typedoc'

const LANDMARKS: readonly (readonly [part: string, attributes: string])[] = [
  ['col-content', 'role="main"'],
  ['page-menu', 'role="region" aria-label="Page"'],
  ['site-menu', 'role="region" aria-label="Site"'],
]

export function nameLandmarks(app: Application): void {
  app.renderer.on(PageEvent.END, page => {
    const named = LANDMARKS.reduce(
      (html, [part, attributes]) => html.replace(`<div class="${part}"`, `<div ${attributes} class="${part}"`),
      page.contents ?? '',
    )
    page.contents = levelled(named)
  })
}

/** Gives a heading that is more than a level below the one before it the next level. */
function levelled(html: string): string {
  let last = 0
  return html.replace(/<h([1-6])(?=[ >])/g, (tag, digit: string) => {
    const level = Math.min(Number(digit), last + 1)
    last = level
    return level === Number(digit) ? tag : `${tag} aria-level="${level}"`
  })
}
