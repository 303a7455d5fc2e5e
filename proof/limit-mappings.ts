// Leaves a pool few mappings in views, so that it unmaps views as often as a pool of thousands of pieces does.

import type { Backing } from '../src/core/pool/backing/backing.js'
import { VirtualBacking } from '../src/core/pool/backing/virtual-backing.js'

/** Lets a pool have at most `most` mappings in views; Infinity leaves it to the pool. */
export function limitMappings(backing: Backing, most: number): void {
  if (!(backing instanceof VirtualBacking) || most === Infinity) return
  const views = backing['views']
  views.hasRoom = (_pieces, mappings) => views.mappings + mappings <= most
}
