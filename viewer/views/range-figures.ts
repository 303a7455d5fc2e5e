// The bytes allocated and freed between the markers A and B.

import { button, byId, element, sizeList } from '../elements.js'
import type { Page, ViewPart } from '../page.js'
import type { FlowAnswer } from '../protocol.js'
import { formatBytes, formatCount } from '../text.js'

export class RangeFigures implements ViewPart {
  private shown: FlowAnswer | null = null

  constructor(private readonly page: Page) {
    page.views.push(this)
  }

  show(): void {
    const { flow } = this.page
    if (flow === this.shown) return
    this.shown = flow
    const host = byId('flow')
    host.hidden = flow === null
    if (flow === null) return
    const lines = this.page.info.hasStacks ? flow.lines : []
    host.replaceChildren(
      element(
        'p',
        {},
        this.sentence(flow),
        ' ',
        button('list what was allocated', () => this.showLines()),
      ),
      sizeList(lines.map(({ bytes, label }) => [formatBytes(bytes), label])),
    )
  }

  private sentence({ a, b, allocated, freed }: FlowAnswer): string {
    const net = allocated.bytes - freed.bytes
    const sign = net > 0 ? '+' : net < 0 ? '−' : '±'
    const found = this.page.colours?.found == null ? '' : ', of the blocks found'
    return (
      `From A at event ${formatCount(a)} to B at event ${formatCount(b)}${found}: ` +
      `${formatBytes(allocated.bytes)} allocated in ${formatCount(allocated.blocks)} blocks, ` +
      `${formatBytes(freed.bytes)} freed in ${formatCount(freed.blocks)}, net ${sign}${formatBytes(Math.abs(net))}.`
    )
  }

  private showLines(): void {
    this.page.update({ question: 'allocated' })
    byId('holders').scrollIntoView()
  }
}
