// The facts of kept memory, and the parts of requests, as both sides know them.

/** The state of a generation, or of a name whose last writer ended early. */
export type RegionState = 'filling' | 'committing' | 'ready' | 'retired' | 'unfinished'

/** A generation of kept memory. Times are milliseconds since 1970. */
export interface RegionInfo {
  readonly name: string
  readonly version: string
  readonly generation: number
  readonly state: RegionState
  /** device memory; before the commit the size that its writer asked for */
  readonly bytes: number
  /** UUID of the device */
  readonly device: string
  readonly labels: Readonly<Record<string, string>>
  /** ids of the processes that have it attached, the writer's too; 0 for a process of another PID namespace */
  readonly readers: readonly number[]
  /** id of the process that filled or fills it */
  readonly writer: number
  /** its last attach or release */
  readonly lastUse: number
  readonly created: number
}

/** A device, as its clients know it. */
export interface KeptDevice {
  readonly uuid: string
  readonly totalBytes: number
  readonly simulated: boolean
}

/** A part of a generation: an exported allocation. */
export interface PieceOf {
  readonly descriptor: number
  readonly bytes: number
}

/** The regions that `prune` drops: all given conditions hold for them. Regions with readers stay. */
export interface PruneRule {
  /** not attached for this time */
  readonly unusedMs?: number
  /** also forget that writers ended early; alone, no region is dropped */
  readonly unfinished?: boolean
  readonly name?: string
  /** without another condition: all of them, and forget that writers ended early */
  readonly all?: boolean
}

/** A change of a generation. */
export interface KeepEvent {
  readonly kind: 'leased' | 'ready' | 'retired' | 'gone' | 'unfinished' | 'lost'
  readonly name: string
  readonly version: string
  readonly generation: number
}

/** The remedy if a new region does not fit beside the kept regions. */
export type IfFull = 'fail' | 'evictUnused' | 'replace'

/** Names and versions of regions have at most this many bytes. */
export const MOST_NAME_BYTES = 255
export const MOST_UUID_BYTES = 100
/** Labels of a region as JSON. With the longest name they fit into a packet. */
export const MOST_LABEL_BYTES = 4096
