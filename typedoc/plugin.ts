// The parts of the site that TypeDoc does not make by its options, in typedoc.json: `npm run site` loads this plugin.

import type { Application } from 'typedoc'
import { addressPages } from './addresses.js'
import { arrangeDocuments } from './documents.js'
import { fitMarkdown } from './markdown.js'
import { fitMarkup } from './markup.js'
import { linkNames } from './name-links.js'
import { describeReference } from './reference.js'
import { rankSearch } from './search.js'
import { addTryPage } from './try-page.js'

export function load(app: Application): void {
  describeReference(app)
  arrangeDocuments(app)
  linkNames(app)
  addressPages(app)
  fitMarkdown(app)
  fitMarkup(app)
  rankSearch(app)
  addTryPage(app)
}
