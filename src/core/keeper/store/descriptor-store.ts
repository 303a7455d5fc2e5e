// The service manager has a copy of each descriptor of the regions that are ready, and the keeper's state. After any
// end of the keeper it passes both to the next keeper. A stored descriptor that the state does not name was never
// acknowledged.

import { type DescriptorError, KeepError } from '../../base/errors.js'
import { closeDescriptor } from '../../libraries/system-calls.js'
import type { Generation } from '../state/generation.js'
import type { KeptRegions } from '../state/kept-regions.js'
import { factsOf, restore, type Snapshot, snapshotIn, snapshotOf } from '../state/snapshot.js'
import { markOf } from '../state/unfinished.js'
import type { Notifications } from './notifications.js'
import { StateFile } from './state-file.js'

/** The name of the state among the descriptors. */
const STATE_NAME = 'state'
const COMMA = Buffer.from(',')

export class DescriptorStore {
  /** how many descriptors each stored generation has */
  private readonly counts = new Map<number, number>()
  /** the part of each in the state, which does not change: with all made anew, 10,000 regions took minutes */
  private readonly facts = new Map<number, Buffer>()
  /** names that the next state does not know */
  private removed: string[] = []
  private isSaved = false
  private savedMarks = 0

  private constructor(
    readonly notifications: Notifications,
    private readonly file: StateFile,
    /** the state of the keeper before; null without one */
    readonly snapshot: Snapshot | null,
    /** the descriptors that it had stored, by name */
    private readonly stored: Map<string, number>,
  ) {}

  /** Takes over what a keeper before has stored. Throws KeepError for a state that cannot be read. */
  static open(notifications: Notifications, stored: Map<string, number>): DescriptorStore {
    const state = stored.get(STATE_NAME)
    stored.delete(STATE_NAME)
    const file = new StateFile(state)
    const bytes = file.read()
    const snapshot = bytes === null ? null : understood(bytes)
    const store = new DescriptorStore(notifications, file, snapshot, stored)
    // One may have come after this process was started.
    if (state === undefined) notifications.send([removing(STATE_NAME), storing(STATE_NAME, file.descriptor)])
    return store
  }

  /** Gives the regions of the keeper before to this keeper. A region is lost if one of its descriptors is missing. */
  restoreTo(regions: KeptRegions): void {
    const { stored, snapshot } = this
    if (snapshot !== null) {
      // How long it was not used is counted from now on.
      const generations = snapshot.generations.map(each => ({ ...each, lastUse: regions.now() }))
      restore({ ...snapshot, generations }, regions, [], ({ number, directory, pieces }) => {
        const names = namesOf(number, pieces.length + (directory ? 1 : 0))
        if (!names.every(name => stored.has(name))) return null
        this.counts.set(number, names.length)
        return names.map(name => {
          const descriptor = stored.get(name)!
          stored.delete(name)
          return descriptor
        })
      })
    }
    this.removed = [...stored.keys()]
    for (const descriptor of stored.values()) closeDescriptor(descriptor)
    stored.clear()
  }

  /** Calls `done` as soon as the manager has the descriptors, or with the refusal of the system. */
  add(generations: readonly Generation[], done: (refusal: DescriptorError | null) => void): void {
    const messages = generations.flatMap(({ number, descriptors }) => {
      this.counts.set(number, descriptors.length)
      return namesOf(number, descriptors.length).map((name, index) => storing(name, descriptors[index]))
    })
    this.notifications.send(messages, done)
  }

  /** Notes that a generation has changed, and whether it is ready now. */
  changed(generation: Generation, isReady: boolean): void {
    this.isSaved = false
    if (isReady) return
    this.removed.push(...namesOf(generation.number, this.counts.get(generation.number) ?? 0))
    this.counts.delete(generation.number)
    this.facts.delete(generation.number)
  }

  /** Writes the state if it has changed, and has the manager remove what it does not know. */
  save(regions: KeptRegions, keeper: number): void {
    const marks = regions.unfinished.size
    if (this.isSaved && this.savedMarks === marks) return
    this.isSaved = true
    this.savedMarks = marks
    const all = [...regions.generations.values()]
    const { generations: _, ...snapshot } = snapshotOf(regions, keeper, [], [])
    // Their writers will not have committed, if this keeper ends now.
    const leased = all.filter(each => each.isLeased).map(each => markOf(each, regions.now()))
    const others = JSON.stringify({ ...snapshot, unfinished: [...snapshot.unfinished, ...leased] })
    const ready = all.filter(({ state }) => state === 'ready').flatMap(each => [COMMA, this.factsOf(each)])
    const start = Buffer.from(`${others.slice(0, -1)},"generations":[`)
    this.file.write(Buffer.concat([start, ...ready.slice(1), Buffer.from(']}')]))
    const { removed } = this
    this.removed = []
    this.notifications.send(removed.map(removing))
  }

  private factsOf(generation: Generation): Buffer {
    const facts = this.facts.get(generation.number) ?? Buffer.from(JSON.stringify(factsOf(generation, [])))
    this.facts.set(generation.number, facts)
    return facts
  }

  close(): void {
    closeDescriptor(this.file.descriptor)
  }
}

function understood(state: Uint8Array): Snapshot {
  try {
    return snapshotIn(state)
  } catch (error) {
    if (!(error instanceof KeepError)) throw error
    const remedy = 'install the version that has written it, or free the memory by systemctl clean --what=fdstore'
    throw new KeepError(`the stored state cannot be read; ${remedy}`, 'protocol', { cause: error })
  }
}

function removing(name: string) {
  return { text: `FDSTOREREMOVE=1\nFDNAME=${name}` }
}

function storing(name: string, descriptor: number) {
  // Without FDPOLL=0 the manager removes a descriptor on which poll tells an error, as a device lost would.
  return { text: `FDSTORE=1\nFDPOLL=0\nFDNAME=${name}`, descriptors: [descriptor] }
}

/** Short names: systemd passes all in one variable, which may have 128 KiB. So 10,000 fit. */
function namesOf(generation: number, count: number): string[] {
  return Array.from({ length: count }, (_, index) => `${generation.toString(36)}.${index.toString(36)}`)
}
