// Second mappings of pieces. A view is a stretch of addresses in which some pieces are mapped once more, one behind
// another, so that the free end of one and the free start of the next are contiguous. A view has no free memory of its
// own: what is free is known from the home range. It is kept for the next request that fits.
// docs/internals/decisions.md#0019-pieces-and-views has the reasons.
//
// A view needs nothing of the host when it is mapped, as the order of the streams is enough. It is unmapped only when
// the host has seen the last use through it complete.

import type { Context } from '../../../driver/context.js'
import type { Driver } from '../../../driver/driver.js'
import { UNIT_BYTES } from '../../../heap/size-classes.js'
import { relaxed } from '../../../order/relaxed.js'
import type { MappedAccess } from '../mapped-access.js'
import type { SegmentWatch } from '../segment-watch.js'
import type { ViewUses } from './last-uses.js'
import type { Piece } from './piece.js'
import type { Stretch } from './stretch.js'
import { unmapOnce } from './unmap-once.js'
import type { ViewAddresses } from './view-addresses.js'

/** Mappings in views beyond which old views go. */
const MAPPINGS_OF_PIECE = 8
const SPARE_MAPPINGS = 1024

export class View {
  /** the view with the lowest was used least recently */
  usedAt = 0
  /** its address; 0 while it has none */
  base = 0
  /** mapped so far */
  mappedBytes = 0
  /** false while it is being mapped, and from the moment it is being unmapped */
  isReady = false
  /** see unmap-once.ts */
  isLeaving = false

  constructor(
    /** index into `ViewUses` */
    readonly number: number,
    readonly units: number,
    readonly pieces: readonly Piece[],
  ) {}

  get bytes(): number {
    return this.units * UNIT_BYTES
  }
}

/** A stretch of free memory in a view. */
interface StretchOfView extends Stretch {
  readonly view: View
}

export class Views {
  private readonly views: View[] = []
  private readonly byPiece = new Map<Piece, readonly View[]>()
  /** numbers of views that are gone */
  private readonly numbers: number[] = []
  /** numbers from this on were never used */
  private firstUnused = 0
  /** blocks that views have served */
  private blocks = 0
  /** how many pieces are mapped in views */
  mappings = 0

  constructor(
    private readonly context: Context,
    private readonly access: MappedAccess,
    private readonly uses: ViewUses,
    private readonly addresses: ViewAddresses,
    private readonly watch: SegmentWatch,
  ) {}

  /** The views in which a piece is mapped. */
  of(piece: Piece): readonly View[] {
    return this.byPiece.get(piece) ?? []
  }

  /** The view in which an address lies, or null. */
  at(ptr: number): View | null {
    return this.views.find(({ base, bytes }) => ptr >= base && ptr < base + bytes) ?? null
  }

  /** The shortest stretch of any view with room for `units`, as far as free-ends.ts has noted; null for none. */
  shortestStretch(units: number): StretchOfView | null {
    let best: StretchOfView | null = null
    for (const view of this.views) {
      if (view.isReady && view.units >= units) best = shortestIn(view, units, best)
    }
    return best
  }

  /** A number that no view has, for memory beside the views. */
  takeNumber(): number {
    const number = this.numbers.pop() ?? this.firstUnused++
    this.uses.fit(number)
    return number
  }

  /** Takes the number of memory back that is gone. */
  giveBackNumber(number: number): void {
    this.numbers.push(number)
  }

  /** Whether another view may be mapped without unmapping one. */
  hasRoom(pieces: number, mappings: number): boolean {
    const hasNumber = this.numbers.length > 0 || this.firstUnused < this.uses.most
    return hasNumber && this.mappings + mappings <= MAPPINGS_OF_PIECE * pieces + SPARE_MAPPINGS
  }

  /** Whether there may be no room soon. */
  isCrowded(pieces: number): boolean {
    return !this.hasRoom(pieces, SPARE_MAPPINGS / 2)
  }

  /** Maps pieces one behind another. Throws the driver's error, and nothing is mapped then. */
  map(pieces: readonly Piece[]): View {
    const units = pieces.reduce((sum, piece) => sum + piece.units, 0)
    const driver = this.context.activate()
    const number = this.takeNumber()
    const view = new View(number, units, pieces)
    this.views.push(view)
    for (const piece of pieces) this.byPiece.set(piece, [...this.of(piece), view])
    this.mappings += pieces.length
    try {
      view.base = this.addresses.take(view.bytes)
      relaxed(driver, () => this.mapEach(driver, view)) // some stream may be captured
    } catch (error) {
      this.context.discard(() => this.unmap(view))
      throw error
    }
    view.isReady = true
    return view
  }

  /** Unmaps all views. Those with blocks keep their addresses, until `mapAgain`. Can be repeated after a refusal. */
  suspend(): void {
    for (const view of [...this.views]) {
      if (this.uses.blocks[view.number] === 0) this.unmap(view)
      else this.unmapMemory(view)
    }
  }

  /** Maps the views that `suspend` has unmapped, at their addresses. */
  *mapAgain(): Generator<{ readonly ptr: number; readonly bytes: number }> {
    const driver = this.context.activate()
    for (const view of [...this.views].sort((a, b) => a.base - b.base)) {
      if (!view.isReady) {
        this.unmapMemory(view) // the rest of a failure
        relaxed(driver, () => this.mapEach(driver, view))
      }
      view.isReady = true
      yield { ptr: view.base, bytes: view.bytes }
    }
  }

  private mapEach(driver: Driver, view: View): void {
    for (const { bytes, handle } of view.pieces) {
      driver.cuMemMap(view.base + view.mappedBytes, bytes, handle)
      view.mappedBytes += bytes
    }
    driver.cuMemSetAccess(view.base, view.bytes, this.access.devices)
    this.watch.ready(view.base, view.bytes)
  }

  /** Notes that a view has another block. */
  noteBlock(view: View): void {
    this.uses.blocks[view.number]++
    view.usedAt = ++this.blocks
  }

  /**
   * Whether a view may be unmapped: it has no block, and the host has seen the last use through it complete. It has,
   * too, if all memory of the view is free and depends on no work, as free-ends.ts has noted.
   */
  isIdle(view: View): boolean {
    if (this.uses.blocks[view.number] > 0) return false
    if (!view.isReady) return true
    return this.uses.isSettled(view.number) || view.pieces.every(piece => piece.isFree)
  }

  /** Unmaps the least recently used idle views until `mappings` more have room; see `isIdle`. */
  makeRoom(pieces: number, mappings: number): void {
    if (this.hasRoom(pieces, mappings)) return
    for (const view of [...this.views].sort((a, b) => a.usedAt - b.usedAt)) {
      if (this.hasRoom(pieces, mappings)) return
      if (this.isIdle(view)) this.unmap(view)
    }
  }

  /** Unmaps an idle view. If the driver refuses, the view is not used any more, and a repetition goes on. */
  unmap(view: View): void {
    this.unmapMemory(view)
    this.forget(view)
  }

  private unmapMemory(view: View): void {
    const driver = this.context.activate()
    view.isReady = false
    if (view.mappedBytes > 0) {
      this.watch.leaving(view.base)
      relaxed(driver, () => unmapOnce(view, () => driver.cuMemUnmap(view.base, view.mappedBytes)))
    }
    view.mappedBytes = 0
  }

  /** Unmaps all idle views; see `isIdle`. */
  unmapIdle(): void {
    for (const view of [...this.views]) if (this.isIdle(view)) this.unmap(view)
  }

  /** Sets one device's access to all that is mapped. */
  applyAccess(device: number, flags: number): void {
    const driver = this.context.activate()
    for (const { base, mappedBytes } of this.views) {
      if (mappedBytes > 0) driver.cuMemSetAccess(base, mappedBytes, [device], flags)
    }
  }

  [Symbol.iterator](): IterableIterator<View> {
    return this.views[Symbol.iterator]()
  }

  /** Unmaps all views; no work may be pending. */
  close(): void {
    while (this.views.length > 0) this.unmap(this.views[this.views.length - 1])
    this.addresses.close()
  }

  private forget(view: View): void {
    const index = this.views.indexOf(view)
    if (index === -1) return
    if (view.base !== 0) this.addresses.giveBack(view.base, view.bytes)
    this.views.splice(index, 1)
    for (const piece of view.pieces) {
      const others = this.of(piece).filter(other => other !== view)
      if (others.length > 0) this.byPiece.set(piece, others)
      else this.byPiece.delete(piece)
    }
    this.mappings -= view.pieces.length
    this.uses.forget(view.number)
    this.numbers.push(view.number)
  }
}

/**
 * The shortest stretch of a view with room for `units`; `best` if that is no longer. A stretch begins with the free end
 * of a piece, runs over whole free pieces, and ends with the free start of the next one. It is taken as soon as it
 * suffices: further pieces make it longer, not better.
 */
function shortestIn(view: View, units: number, best: StretchOfView | null): StretchOfView | null {
  let first = -1 // the piece that begins the present stretch; -1 for none
  let start = 0 // of the stretch, from the start of the view
  let length = 0 // of the stretch, up to the present piece
  let offset = 0 // of the present piece, from the start of the view
  for (let index = 0; index < view.pieces.length; index++) {
    const piece = view.pieces[index]
    const whole = length + piece.startFree
    if (first !== -1 && whole >= units && (best === null || whole < best.units)) {
      best = { view, first, last: index, start, units: whole }
    }
    if (first !== -1 && piece.isFree) length += piece.units
    else {
      first = piece.endFree > 0 ? index : -1
      start = offset + piece.units - piece.endFree
      length = piece.endFree
    }
    offset += piece.units
  }
  return best
}
