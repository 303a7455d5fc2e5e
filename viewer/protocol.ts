// The page's requests to its worker, and the worker's answers.

import type { Grouping, LegendEntry } from '../src/recordings/picture/colouring.js'
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
export interface Choice {
  readonly grouping: Grouping
  /** cells of the legend; none for all */
  readonly only: readonly number[]
  /** text in stacks, tags or pools */
  readonly find: string
}

export interface PaintRequest {
  readonly view: View
  readonly stackedHeight: number
  readonly maps: readonly { readonly policy: string; readonly width: number; readonly height: number }[]
  readonly palette: Uint32Array
  readonly hatch: number
  /** whether the answer has cells, not colours */
  readonly raw: boolean
}

export interface PaintAnswer {
  readonly view: View
  readonly event: Int32Array
  readonly left: Int32Array
  readonly inUse: Float64Array
  readonly topBytes: number
  readonly mapUnits: number
  readonly stacked: Uint32Array
  readonly maps: readonly Uint32Array[]
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

export interface BlockInfo {
  readonly block: number
  readonly bytes: number
  readonly allocatedAt: number
  readonly freedAt: number
  /** microseconds; null if it is held at the end, or since before the start */
  readonly lifeUs: number | null
  readonly group: string
  readonly cell: number
  readonly stream: string
  readonly pool: string
  readonly tag: string
  readonly stack: readonly string[]
  readonly addresses: readonly { readonly label: string; readonly address: number }[]
}

/** The blocks of a table and an icicle. */
export type BlockSet =
  | { readonly kind: 'at'; readonly event: number; readonly before: number | null }
  | { readonly kind: 'step'; readonly step: number }
  | { readonly kind: 'question'; readonly question: Question; readonly a: number; readonly b: number }

export interface HoldersAnswer {
  readonly bytes: number
  readonly blocks: number
  readonly groups: number
  readonly rows: readonly HolderRow[]
  readonly icicle: HeldIcicle
  /** the path that it shows in detail */
  readonly under: readonly string[]
}

export interface HistoryAnswer {
  readonly total: number
  readonly rows: readonly BlockInfo[]
}

export interface ColourAnswer {
  readonly legend: readonly LegendEntry[]
  readonly isScale: boolean
  /** blocks that the search finds; null without a search */
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
      | { readonly event: number; readonly policy: string; readonly unit: number }
      | { readonly block: number }
    readonly answer: BlockInfo | null
  }
  holders: { readonly asked: { readonly set: BlockSet } & IcicleOptions; readonly answer: HoldersAnswer }
  history: { readonly asked: { readonly block: number; readonly policy: string }; readonly answer: HistoryAnswer }
}
export type RequestName = keyof Requests
