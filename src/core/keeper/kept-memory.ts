// How much a keeper keeps, and how much of that has no readers: for the error of a full device, and for `info`.

import { formatBytes } from '../base/bytes.js'
import { listed } from '../base/readable.js'
import { shownName } from '../base/shown-text.js'
import { LastingAnswers } from '../libraries/lasting-answers.js'
import { listNow } from './list-now.js'
import type { RegionInfo } from './region.js'
import { usualSocketPath } from './socket-path.js'
import { pruneCommand } from './state/commands.js'

/** A keeper answers within a millisecond; on a busy machine it may have to wait until it runs. */
const PATIENCE_MS = 200

/** The kept memory of a user. */
export interface KeptMemory {
  /** device memory of whole regions, of all devices */
  readonly bytes: number
  /** how many whole regions there are */
  readonly regions: number
  /** the part of `bytes` on the device that the report is about */
  readonly deviceBytes: number
  /** the regions that no process has attached */
  readonly unused: {
    readonly bytes: number
    readonly regions: number
    /** when the longest unused of them was last attached or released, in milliseconds since 1970; null without any */
    readonly since: number | null
  }
}

/** Sums up the regions of a keeper. */
export function keptMemory(regions: readonly RegionInfo[], uuid: string): KeptMemory {
  const kept = regions.filter(({ state }) => state === 'ready' || state === 'retired')
  const unused = kept.filter(isUnused)
  const onDevice = kept.filter(({ device }) => device === uuid)
  const since = unused.length === 0 ? null : Math.min(...unused.map(({ lastUse }) => lastUse))
  return {
    bytes: bytesOf(kept),
    regions: kept.length,
    deviceBytes: bytesOf(onDevice),
    unused: { bytes: bytesOf(unused), regions: unused.length, since },
  }
}

/** Whether a region is whole and no process has it attached, so that `prune` frees it. */
export function isUnused({ state, readers }: Pick<RegionInfo, 'state' | 'readers'>): boolean {
  return state === 'ready' && readers.length === 0
}

/** The sockets of the keepers that this thread has asked. */
const paths = new Set<string>()
const lists = new LastingAnswers(path => listNow(path, PATIENCE_MS))

/** From now on `unusedText` asks the keeper at `path`, too. */
export function noteKeeper(path: string): void {
  paths.add(path)
}

/**
 * What is kept without readers on a device, and the command that frees it: `32 GiB are kept as 'weights', without
 * readers: cuda-mempool keep prune --name weights`. Null if there is nothing, or no keeper answers. The answer may be
 * seconds old. `uuid` tells the device; it is called only if something is kept without readers.
 */
export function unusedText(uuid: () => string): string | null {
  const usual = usualSocketPath()
  for (const path of new Set([usual, ...paths])) {
    const all = (lists.about(path) ?? []).filter(isUnused)
    const here = all.length === 0 ? null : uuid()
    const unused = all.filter(({ device }) => device === here)
    if (unused.length === 0) continue
    unused.sort((a, b) => b.bytes - a.bytes)
    const [largest] = unused
    const names = listed(unused.map(({ name, bytes }) => `${shownName(name)} (${formatBytes(bytes)})`))
    const what = unused.length === 1 ? shownName(largest.name) : names
    const command = pruneCommand(largest.name, path === usual ? null : path)
    return `${formatBytes(bytesOf(unused))} are kept as ${what}, without readers: ${command}`
  }
  return null
}

function bytesOf(regions: readonly RegionInfo[]): number {
  return regions.reduce((sum, { bytes }) => sum + bytes, 0)
}
