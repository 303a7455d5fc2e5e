// The segments of a pool, described for the thread that makes them: a plan can be sent to it, a source cannot.

import type { Context } from '../../driver/context.js'
import { type PinnedOptions, PinnedSegments } from './pinned-segments.js'
import type { SegmentSource } from './segment-source.js'
import { type SlabPlan, SlabSource } from './slab-source.js'

interface PinnedPlan extends PinnedOptions {
  readonly segments: 'pinned'
}

export type SegmentPlan = SlabPlan | PinnedPlan

export function sourceOf(context: Context, plan: SegmentPlan): SegmentSource {
  if (plan.segments === 'slabs') return new SlabSource(context, plan)
  return new PinnedSegments(context, true, plan)
}
