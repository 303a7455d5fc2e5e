// The regions that a keeper must have, by the answers that processes got. Processes act at the same time; after each
// round all rest, and the list of the keeper is compared. A commit of a killed process may have succeeded or not.

import assert from 'node:assert/strict'
import type { RegionInfo } from '../core/keeper/region.js'
import type { Held } from './keep-process.fixture.js'

export class KeptModel {
  /** by name: the highest generation in an answer, unless it was dropped since */
  private readonly ready = new Map<string, number>()
  /** by process: how often it has each generation attached */
  private readonly held = new Map<number, Map<number, number>>()
  /** by name: the highest generation in an answer, dropped or not */
  private readonly committed = new Map<string, number>()
  private readonly killed = new Set<number>()

  /** A process has a region attached. */
  attached(pid: number, { name, generation, isWhole }: Held): void {
    assert.ok(isWhole, `${name}, generation ${generation}, has other contents than its writer gave it`)
    const own = this.held.get(pid) ?? new Map()
    this.held.set(pid, own.set(generation, (own.get(generation) ?? 0) + 1))
    for (const highest of [this.ready, this.committed]) highest.set(name, Math.max(generation, highest.get(name) ?? 0))
  }

  /** A generation that the process has attached, to be closed; undefined without one. */
  anyHeld(pid: number, choice: (count: number) => number): number | undefined {
    const own = [...(this.held.get(pid) ?? [])].filter(([, count]) => count > 0)
    return own[choice(own.length)]?.[0]
  }

  closed(pid: number, generation: number): void {
    const own = this.held.get(pid)!
    own.set(generation, own.get(generation)! - 1)
  }

  closedAll(pid: number): void {
    this.held.delete(pid)
  }

  ended(pid: number): void {
    this.held.delete(pid)
    this.killed.add(pid)
  }

  /**
   * The keeper was killed: `list` is that of the next keeper, whose numbers begin with `firstOfNext`. It has the
   * regions that processes with them have offered, or all if it had taken over just before.
   */
  restarted(list: readonly RegionInfo[], firstOfNext: number): void {
    const old = list.filter(({ generation, state }) => generation < firstOfNext && state !== 'unfinished')
    for (const { name, generation } of old)
      assert.ok(generation <= (this.committed.get(name) ?? 0), `${name}, generation ${generation}, is unknown`)
    for (const [pid, own] of this.held) {
      for (const [generation, count] of own) {
        if (count === 0 || generation >= firstOfNext || this.orphans.has(generation)) continue
        const isThere = old.some(each => each.generation === generation)
        assert.ok(isThere, `process ${pid} has generation ${generation}, and did not offer it`)
      }
    }
    if (old.some(({ readers }) => readers.length === 0)) return
    for (const [name, generation] of this.ready) {
      const found = old.find(each => each.name === name && each.state === 'ready')
      if (found !== undefined)
        this.ready.set(name, Math.max(found.generation, generation < firstOfNext ? 0 : generation))
      else if (generation < firstOfNext) this.ready.delete(name)
    }
  }

  /** generations that processes have attached, and the keeper was told to drop */
  private readonly orphans = new Set<number>()

  /** A name was dropped; with `force` its memory, too. */
  dropped(name: string, list: readonly RegionInfo[], force: boolean): void {
    this.ready.delete(name)
    if (!force) return
    for (const each of list) if (each.name === name) this.orphans.add(each.generation)
  }

  /** All without readers was dropped. */
  pruned(pruned: readonly RegionInfo[], list: readonly RegionInfo[]): void {
    const unused = list.filter(
      ({ state, readers }) => state === 'unfinished' || (state === 'ready' && readers.length === 0),
    )
    const numbers = (infos: readonly RegionInfo[]) => infos.map(({ generation }) => generation).sort()
    assert.deepEqual(numbers(pruned), numbers(unused), 'prune drops all without readers')
    for (const { name, state } of unused) if (state === 'ready') this.ready.delete(name)
  }

  /** Asserts what holds at any time. */
  static checkAny(list: readonly RegionInfo[]): void {
    for (const states of [['ready'], ['filling', 'committing'], ['unfinished']]) {
      const names = list.filter(({ state }) => states.includes(state)).map(({ name }) => name)
      assert.equal(new Set(names).size, names.length, `one is ${states} for each name: ${names}`)
    }
  }

  /** Asserts that the list is what it must be while all processes rest. */
  check(list: readonly RegionInfo[]): void {
    KeptModel.checkAny(list)
    for (const info of list) this.checkOne(info)
    for (const [name, generation] of this.ready) {
      const found = list.find(each => each.name === name && each.state === 'ready')
      assert.ok(found !== undefined, `${name}, generation ${generation}, is not there`)
      assert.ok(found.generation >= generation, `${name} has generation ${found.generation} after ${generation}`)
      const isOfKilled = found.generation > generation
      assert.ok(!isOfKilled || this.killed.has(found.writer), `nobody was told of ${name} ${found.generation}`)
      this.ready.set(name, found.generation)
      this.committed.set(name, found.generation)
    }
    for (const [pid, own] of this.held) {
      for (const [generation, count] of own) {
        if (count === 0 || this.orphans.has(generation)) continue
        const found = list.find(each => each.generation === generation)
        assert.ok(found?.readers.includes(pid), `process ${pid} has generation ${generation} attached`)
      }
    }
  }

  private checkOne(info: RegionInfo): void {
    const { name, generation, state, readers, writer } = info
    const what = `${name}, generation ${generation}, ${state}`
    if (state === 'unfinished') {
      assert.ok(generation > (this.committed.get(name) ?? 0), `${what}: it was committed later`)
      return
    }
    assert.ok(state === 'ready' || state === 'retired', `${what}: all processes rest`)
    if (state === 'retired') assert.ok(readers.length > 0, `${what}: nobody has it attached`)
    const isTold = this.ready.get(name) !== undefined || state === 'retired'
    if (!isTold) {
      assert.ok(this.killed.has(writer), `${what}: nobody was told of it`)
      this.ready.set(name, generation)
    }
    for (const pid of readers) {
      assert.ok((this.held.get(pid)?.get(generation) ?? 0) > 0, `${what}: process ${pid} does not have it attached`)
    }
  }
}
