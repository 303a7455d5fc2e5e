// The facts of kept memory, and the parts of requests, as both sides know them.

/** The state of a generation, or of a name whose last writer ended early. */
export type RegionState = 'filling' | 'committing' | 'ready' | 'retired' | 'unfinished'

/** A generation of kept memory. Times are milliseconds since 1970. */
export interface RegionInfo {
  /** as its writer named it */
  readonly name: string
  /** of the contents, as their writer named it */
  readonly version: string
  /** a number of its own for each filling, which counts up */
  readonly generation: number
  /** its state now */
  readonly state: RegionState
  /** device memory; before the commit the size that its writer asked for */
  readonly bytes: number
  /** UUID of the device */
  readonly device: string
  /** as its writer gave them */
  readonly labels: Readonly<Record<string, string>>
  /** ids of the processes that have it attached, the writer's too; 0 for a process of another PID namespace */
  readonly readers: readonly number[]
  /** id of the process that filled or fills it */
  readonly writer: number
  /** its last attach or release */
  readonly lastUse: number
  /** when its filling began */
  readonly created: number
}

/** A device, as its clients know it. */
export interface KeptDevice {
  readonly uuid: string
  readonly totalBytes: number
  readonly simulated: boolean
}

/** A generation, as a keeper has to know it. */
export interface Facts {
  readonly generation: number
  readonly name: string
  readonly version: string
  readonly device: KeptDevice
  readonly labels: Readonly<Record<string, string>>
  /** length of its contents */
  readonly bytes: number
}

/** Regions of this device are memory of the host: sealed files. */
export const HOST = 'host'

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
  /** of this name */
  readonly name?: string
  /** without another condition: all of them, and forget that writers ended early */
  readonly all?: boolean
}

/** A change of a generation. */
export interface KeepEvent {
  /** its new state; 'lost' if its device was reset */
  readonly kind: 'leased' | 'ready' | 'retired' | 'gone' | 'unfinished' | 'lost'
  /** the region's name */
  readonly name: string
  /** the version of its contents */
  readonly version: string
  /** the number of its filling */
  readonly generation: number
}

/** The remedy if a new region does not fit beside the kept regions. */
export type IfFull = 'fail' | 'evictUnused' | 'replace'

/** Names and versions of regions have at most this many bytes. */
export const MOST_NAME_BYTES = 255
export const MOST_UUID_BYTES = 100
/** Labels of a region as JSON. With the longest name they fit into a packet. */
export const MOST_LABEL_BYTES = 4096
