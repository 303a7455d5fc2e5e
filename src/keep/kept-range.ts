// The memory of a region: few driver handles, since the time to attach memory goes by handles and not by bytes. The
// writer makes them, and a reader imports them from descriptors.

import { GiB } from '../core/base/bytes.js'
import {
  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
  CU_MEM_ACCESS_FLAGS_PROT_READ as READ,
} from '../core/driver/constants.js'
import type { Context } from '../core/driver/context.js'
import { piecesFrom } from '../core/keeper/attachments.js'
import type { PieceOf } from '../core/keeper/region.js'
import { GrowableRange } from '../core/pool/backing/growable-range.js'

const FILE = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
/** One handle of 32 GiB was measured: 1 ms to attach it, against 36 ms for 512 handles (docs/keep.md). */
const MOST_PIECE_BYTES = 32 * GiB

export class KeptRange extends GrowableRange {
  /** the pieces of a committed region that are to be imported; null for memory that this process makes */
  private readonly kept: readonly PieceOf[] | null

  constructor(context: Context, granuleBytes: number, memoryBytes: number, kept: readonly PieceOf[] | null) {
    super(context, granuleBytes, memoryBytes)
    this.kept = kept
    if (kept !== null) this.allow(READ)
  }

  /** From now on no device may write; the driver refuses copies, and a kernel that writes ends its context. */
  protect(): void {
    this.allow(READ)
  }

  /** New descriptors of the memory, which the caller closes. When it throws, it has closed them. */
  exported(): PieceOf[] {
    const driver = this.context.activate()
    return piecesFrom(this.pieces, ({ handle }) => driver.cuMemExportToShareableHandle(handle, FILE))
  }

  protected override pieceBytes(): number {
    return this.kept?.[this.pieces.length].bytes ?? Math.max(MOST_PIECE_BYTES, this.granuleBytes)
  }

  protected override obtain(bytes: number): number {
    const driver = this.context.activate()
    const piece = this.kept?.[this.pieces.length]
    if (piece === undefined) return driver.cuMemCreate(bytes, this.context.device, FILE)
    return driver.cuMemImportFromShareableHandle(piece.descriptor, FILE)
  }
}
