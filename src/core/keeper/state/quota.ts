// How much a keeper keeps, and what it refuses beyond that.

import { formatBytes } from '../../base/bytes.js'
import { KeepError } from '../../base/errors.js'
import { listed } from '../../base/readable.js'
import { printable, shownName } from '../../base/shown-text.js'
import type { KeptDevice } from '../region.js'
import { pruneCommand } from './commands.js'
import type { Generation } from './generation.js'

export interface Limits {
  /** for each device; null: `USUAL_SHARE` of its memory */
  readonly maxBytes: number | null
  /** generations, and marks of writers that ended early */
  readonly maxRegions: number
  /** of pieces and directories */
  readonly maxDescriptors: number
}

/** The rest is for programs that keep nothing: a context of CUDA takes half a GiB. */
const USUAL_SHARE = 0.9

/** Counts the kept memory. */
export class Usage {
  private readonly bytes = new Map<string, number>()
  private descriptors = 0
  private regions = 0

  /** `socket` is the keeper's, for commands in messages, if it is not the usual one. */
  constructor(
    private readonly limits: Limits,
    private readonly socket: string | null,
  ) {}

  /** Counts a change; `bytes` are of `device`. */
  add(
    { uuid }: KeptDevice,
    change: { readonly bytes?: number; readonly descriptors?: number; readonly regions?: number },
  ): void {
    const bytes = (this.bytes.get(uuid) ?? 0) + (change.bytes ?? 0)
    if (bytes === 0) this.bytes.delete(uuid)
    else this.bytes.set(uuid, bytes)
    this.descriptors += change.descriptors ?? 0
    this.regions += change.regions ?? 0
  }

  /** Whether `bytes` more, in a region more, would be too much, if `freed` regions were dropped first. */
  isTooMuch(bytes: number, device: KeptDevice, freed: readonly Generation[] = []): boolean {
    const freedBytes = freed.reduce((sum, each) => sum + (each.device.uuid === device.uuid ? each.bytes : 0), 0)
    const kept = (this.bytes.get(device.uuid) ?? 0) - freedBytes
    return kept + bytes > this.mostBytes(device) || this.regions - freed.length >= this.limits.maxRegions
  }

  /** Throws KeepError unless this many more descriptors may be kept, and bytes beyond those that were leased. */
  checkPieces(name: string, device: KeptDevice, bytes: number, descriptors: number): void {
    const { maxDescriptors } = this.limits
    if (this.descriptors + descriptors > maxDescriptors) {
      const remedy = `make larger pieces, or start the keeper with --max-descriptors above ${maxDescriptors}`
      throw new KeepError(`${shownName(name)} has more pieces than the keeper may have descriptors; ${remedy}`, 'quota')
    }
    if (bytes > 0 && (this.bytes.get(device.uuid) ?? 0) + bytes > this.mostBytes(device)) {
      throw new KeepError(
        `${shownName(name)} has ${formatBytes(bytes)} more than was asked for, which do not fit`,
        'quota',
      )
    }
  }

  /** The error for a region that is too much; `idle` are the regions without readers on its device. */
  refusal(name: string, bytes: number, device: KeptDevice, idle: readonly Generation[]): KeepError {
    const { maxRegions } = this.limits
    const most = this.mostBytes(device)
    if (bytes > most) {
      const sizes = `${formatBytes(bytes)} on ${printable(device.uuid)}, where ${formatBytes(most)} may be kept`
      return new KeepError(`${shownName(name)} needs ${sizes}; start the keeper with a larger --max-bytes`, 'quota')
    }
    const kept = this.bytes.get(device.uuid) ?? 0
    const lack =
      this.regions >= maxRegions
        ? `${shownName(name)} is one more than the ${maxRegions} regions that may be kept`
        : `${shownName(name)} needs ${formatBytes(bytes)} on ${printable(device.uuid)}, where ${formatBytes(kept)} of at most ${formatBytes(most)} are kept`
    return new KeepError(`${lack}; ${this.remedy(bytes, device, idle)}`, 'quota')
  }

  /** The command that makes room: it drops the region that was unused longest of those that suffice, or all. */
  private remedy(bytes: number, device: KeptDevice, idle: readonly Generation[]): string {
    const option = this.regions >= this.limits.maxRegions ? '--max-regions' : '--max-bytes'
    if (idle.length === 0) return `all have readers: end some, or start the keeper with a larger ${option}`
    const enough = idle.find(each => !this.isTooMuch(bytes, device, [each]))
    const ordered = enough === undefined ? idle : [enough, ...idle.filter(each => each !== enough)]
    const regions = ordered.map(each => `${shownName(each.name)} (${formatBytes(each.bytes)})`)
    const command = pruneCommand(enough?.name ?? null, this.socket)
    const isLittle = this.isTooMuch(bytes, device, idle) ? `, and end some readers, or raise ${option}` : ''
    return `without readers: ${listed(regions)}; free with: ${command}${isLittle}`
  }

  /** Throws unless the counts are those of `generations`. */
  check(generations: readonly Generation[]): void {
    const [counted, own] = [new Usage(this.limits, this.socket), [...this.bytes]]
    for (const each of generations) {
      counted.add(each.device, { bytes: each.bytes, descriptors: each.descriptors.length, regions: 1 })
    }
    const agree =
      own.length === counted.bytes.size &&
      own.every(([uuid, bytes]) => counted.bytes.get(uuid) === bytes) &&
      counted.descriptors === this.descriptors &&
      counted.regions === this.regions
    if (!agree) throw new Error('the keeper counts other memory than it keeps')
  }

  private mostBytes({ totalBytes }: KeptDevice): number {
    return this.limits.maxBytes ?? Math.floor(totalBytes * USUAL_SHARE)
  }
}
