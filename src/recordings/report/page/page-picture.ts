// The picture of a recording on its page: all allocations, and where each policy placed them.

import { encodePicture } from '../../picture/codec/codec.js'
import { makePicture } from '../../picture/make-picture.js'
import type { Picture } from '../../picture/picture.js'
import type { PlacedPolicy } from '../../picture/policy-picture.js'
import { recordedPlacements } from '../../trace/placements/recorded-placements.js'
import { nameOf } from '../policy-names.js'
import type { ReportedTrace } from './reported-trace.js'

/** The policies that have maps in each recording. */
export const SHOWN_FIRST: readonly string[] = ['recorded', 'cuda-mempool']
const MOST_EVENTS_WITH_ALL_MAPS = 200_000

export function reportedPicture(reported: Pick<ReportedTrace, 'trace' | 'replay'>): Picture {
  return makePicture(reported.trace, placedOf(reported))
}

/** The picture as bytes, which `decodePicture` reads. */
export function pagePicture(reported: Pick<ReportedTrace, 'trace' | 'replay'>): Uint8Array {
  return encodePicture(reportedPicture(reported))
}

/**
 * The policies of the picture. A model that placed all blocks as recorded has the map of the recording. In large
 * recordings only the two policies that are shown first have maps: each takes a byte for each event.
 */
function placedOf({ trace, replay }: Pick<ReportedTrace, 'trace' | 'replay'>): PlacedPolicy[] {
  const runs = replay?.runs ?? []
  const isKnown = runs.some(({ policy }) => policy === 'recorded')
  const recorded = isKnown
    ? []
    : [{ policy: 'recorded', label: nameOf('recorded', trace), ...recordedPlacements(trace) }]
  const replayed = runs.flatMap(({ policy, placements, placement }) => {
    if (placements === null) return []
    const placed = { policy, label: nameOf(policy, trace), ...placements }
    const isRecorded = placement !== null && placement.exact === placement.allocations
    const hasMap = SHOWN_FIRST.includes(policy) || (!isRecorded && trace.events <= MOST_EVENTS_WITH_ALL_MAPS)
    return [hasMap ? placed : { ...placed, address: null }]
  })
  return [...recorded, ...replayed].filter(({ ranges, reservedBytes }) => ranges !== null || reservedBytes !== null)
}
