// Reaches the bands, blocks and holes of a picture by keys: ↑ and ↓ go to the next one at the cursor, Enter selects.

import type { Page } from '../page.js'
import type { PlaceInfo } from '../protocol.js'
import { hideTip, type Point, placeLines, showTip } from './tip.js'

/** A picture whose places keys can reach. */
export interface Probed {
  /** bytes at its upper edge */
  top(): number
  pick(event: number, bytes: number): Promise<PlaceInfo | null>
}

export class Probe {
  private found: { readonly event: number; readonly place: PlaceInfo } | null = null

  constructor(
    private readonly page: Page,
    host: HTMLElement,
    private readonly picture: Probed,
    /** the point of the window at a height of the picture and the cursor */
    private readonly pointAt: (bytes: number) => Point,
  ) {
    host.addEventListener('keydown', event => this.key(event))
    host.addEventListener('blur', () => this.leave())
  }

  /** The place that keys have reached; null for none, and after the cursor has moved. */
  get place(): PlaceInfo | null {
    return this.found?.event === this.page.state.cursor ? this.found.place : null
  }

  private key(event: KeyboardEvent): void {
    const { place, page } = this
    const step = { ArrowUp: 1, ArrowDown: -1 }[event.key]
    if (step !== undefined) void page.client.during(this.move(step))
    else if (event.key === 'Enter' && place?.block != null) page.update({ pinned: place.block.block })
    else {
      hideTip()
      return
    }
    event.preventDefault()
    event.stopPropagation()
  }

  private async move(step: number): Promise<void> {
    const { page, picture, found } = this
    const { cursor } = page.state
    const bytes = found === null ? 0 : step > 0 ? found.place.to : found.place.from - 1
    const place = bytes < 0 || bytes >= picture.top() ? found?.place : await picture.pick(cursor, bytes)
    if (place == null || page.state.cursor !== cursor) return
    this.found = { event: cursor, place }
    showTip(this.pointAt((place.from + Math.min(place.to, picture.top())) / 2), placeLines(place))
    page.draw()
  }

  private leave(): void {
    this.found = null
    hideTip()
    this.page.draw()
  }
}
