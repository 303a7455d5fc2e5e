import type { PhysicalMemory } from '../device.js'
import type { AccessRights } from './access-rights.js'
import type { DeviceContents } from './contents.js'

/**
 * Consecutive addresses with one piece of contents behind them: a whole allocation, or one mapping of a reservation.
 */
export interface Extent {
  readonly base: number
  readonly bytes: number
  /** the device or host memory that holds the contents; null for host memory that is only registered */
  readonly memory: PhysicalMemory | null
  /** null once the contents are gone: the exporting process freed them first */
  readonly contents: DeviceContents | null
  /** offset in the contents, in bytes, of the first address */
  readonly contentsOffset: number
  readonly access: Readonly<AccessRights>
}
