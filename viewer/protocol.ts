// The page's requests to its worker, and the worker's answers.

import type { Filter, Grouping, LegendEntry } from '../src/recordings/picture/colouring.js'
import type { EventRow } from '../src/recordings/picture/event-list.js'
import type { HeldIcicle, HolderRow, IcicleOptions } from '../src/recordings/picture/holders.js'
import type { View } from '../src/recordings/picture/moments.js'
import type { Question } from '../src/recordings/picture/questions.js'

/** A policy as the page names it. */
export interface PolicyInfo {
  readonly policy: string
  readonly label: string
  /** whether there is an address map of it */
  readonly hasMap: boolean
  readonly units: number
}

/** A recording that the worker has unpacked. */
export interface RecordingInfo {
  readonly events: number
  readonly spanUs: number
  /** by event, since the first one */
  readonly timeUs: Float64Array
  readonly allocations: number
  readonly peakEvent: number
  readonly peakBytes: number
  readonly steps: Int32Array
  readonly failures: Int32Array
  readonly policies: readonly PolicyInfo[]
  readonly groupings: readonly Grouping[]
  readonly hasStacks: boolean
  /** bytes that each step left behind */
  readonly left: readonly number[]
}

/** The blocks that have their colours; the others are faded. */
export interface Choice extends Filter {
  readonly grouping: Grouping
  /** text in stacks, tags or pools */
  readonly find: string
}

export interface PaintRequest {
  readonly view: View
  readonly stackedHeight: number
  readonly maps: readonly { readonly policy: string; readonly width: number; readonly height: number }[]
  readonly palette: Uint32Array
  readonly hatch: number
  /** the block to outline; null for none */
  readonly selected: number | null
  /** whether the answer has cells, not colours */
  readonly raw: boolean
}

/** Where the selected block lies in the pictures. */
export interface Outline {
  /** the events from its allocation, until it is freed */
  readonly from: number
  readonly to: number
  /** in the stacked picture, as `bandsOf` has it */
  readonly bands: Int32Array
  /** in each map, as `runsOf` has it */
  readonly runs: readonly Float64Array[]
}

export interface PaintAnswer {
  readonly view: View
  readonly event: Int32Array
  readonly left: Int32Array
  readonly inUse: Float64Array
  readonly topBytes: number
  /** rows of pixels in the stacked picture */
  readonly rows: number
  readonly mapUnits: number
  readonly stacked: Uint32Array
  readonly maps: readonly Uint32Array[]
  readonly outline: Outline | null
  readonly rawStacked: Uint8Array | null
  readonly rawMaps: readonly Uint8Array[]
}

export interface CurvesAnswer {
  readonly event: Int32Array
  readonly left: Int32Array
  readonly inUse: Float64Array
  /** for each policy, the most in each column */
  readonly reserved: readonly Float64Array[]
}

/** A block in a line. */
export interface BlockLine {
  readonly block: number
  readonly bytes: number
  /** -1 before the recording */
  readonly allocatedAt: number
  /** -1 for a block held to the end */
  readonly freedAt: number
  readonly group: string
}

/** A line of a call stack. */
export interface StackLine {
  readonly text: string
  /** the file and the line, for an editor; null if the recording does not have the whole path */
  readonly path: string | null
}

export interface BlockInfo extends BlockLine {
  /** microseconds; null if it is held at the end, or since before the start */
  readonly lifeUs: number | null
  readonly stream: string
  readonly pool: string
  readonly tag: string
  readonly stack: readonly StackLine[]
  /** where each policy put it, in words */
  readonly addresses: readonly { readonly label: string; readonly text: string }[]
}

/** Unused memory of a policy. */
export interface HoleInfo {
  readonly address: number
  /** -1 before the recording */
  readonly since: number
  /** the blocks at its ends; null where the memory ends */
  readonly below: BlockLine | null
  readonly above: BlockLine | null
  readonly pieces: number
}

/** What is at a place of a picture, from and to bytes of its upward axis. */
export interface PlaceInfo {
  readonly from: number
  readonly to: number
  readonly block: BlockInfo | null
  readonly hole: HoleInfo | null
  /** whether it is the band of all small blocks */
  readonly isSmall: boolean
}

/** The blocks of a table and an icicle. */
export type BlockSet =
  | { readonly kind: 'at'; readonly event: number; readonly before: number | null }
  | { readonly kind: 'step'; readonly step: number }
  | { readonly kind: 'question'; readonly question: Question; readonly a: number; readonly b: number }

export interface HoldersAnswer {
  /** of the blocks that a search and a filter find */
  readonly bytes: number
  /** of all blocks */
  readonly allBytes: number
  readonly blocks: number
  readonly groups: number
  readonly rows: readonly HolderRow[]
  readonly icicle: HeldIcicle
  /** the path that it shows in detail */
  readonly under: readonly string[]
}

/** The blocks that held an address, in order of allocation; none if the policy did not place the block. */
export interface HistoryAnswer {
  /** the block whose address it is */
  readonly first: number
  /** NaN without blocks */
  readonly address: number
  readonly total: number
  readonly rows: readonly BlockLine[]
}

/** The bytes that came and went after event `a`, up to event `b`. */
export interface FlowAnswer {
  readonly a: number
  readonly b: number
  readonly allocated: { readonly bytes: number; readonly blocks: number }
  readonly freed: { readonly bytes: number; readonly blocks: number }
  /** the lines that allocated most of them */
  readonly lines: readonly { readonly label: string; readonly bytes: number }[]
}

/** Events, those beyond a thousand only counted. */
export interface ListAnswer {
  readonly total: number
  readonly rows: readonly (EventRow & { readonly line: string })[]
}

export interface ColourAnswer {
  readonly legend: readonly LegendEntry[]
  readonly isScale: boolean
  /** counts the answers */
  readonly version: number
  /** blocks that the search and the filter find; null without them */
  readonly found: number | null
  readonly foundBytesAtPeak: number
}

/** Each request's arguments and answer. */
export interface Requests {
  load: { readonly asked: { readonly index: number; readonly packed: string | null }; readonly answer: RecordingInfo }
  colour: { readonly asked: Choice; readonly answer: ColourAnswer }
  paint: { readonly asked: PaintRequest; readonly answer: PaintAnswer }
  curves: { readonly asked: { readonly view: View }; readonly answer: CurvesAnswer }
  pick: {
    readonly asked:
      | { readonly event: number; readonly bytes: number; readonly topBytes: number; readonly height: number }
      | { readonly event: number; readonly bytes: number; readonly policy: string }
    readonly answer: PlaceInfo | null
  }
  block: { readonly asked: { readonly block: number }; readonly answer: BlockInfo | null }
  holders: { readonly asked: { readonly set: BlockSet } & IcicleOptions; readonly answer: HoldersAnswer }
  flow: { readonly asked: { readonly a: number; readonly b: number }; readonly answer: FlowAnswer }
  list: {
    readonly asked: { readonly from: number; readonly to: number; readonly policy: string | null }
    readonly answer: ListAnswer
  }
  /** The blocks at the address of `first`, or of `block` if `block` never held it. */
  history: {
    readonly asked: { readonly block: number; readonly first: number; readonly policy: string }
    readonly answer: HistoryAnswer
  }
}
export type RequestName = keyof Requests
