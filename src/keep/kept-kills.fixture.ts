// A random program of processes with regions, which are killed at any time: those that fill, wait and read, and
// keepers, also while one takes over from another. After each kill all regions are whole, and the keeper's list is that
// of a model.

import assert from 'node:assert/strict'
import { mkdirSync, readdirSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { setImmediate, setTimeout } from 'node:timers/promises'
import { buildSync } from 'esbuild'
import { GiB, MiB } from '../core/base/bytes.js'
import { KeepError } from '../core/base/errors.js'
import { Random } from '../core/base/random.js'
import type { Device } from '../core/device/device.js'
import { openDevice } from '../core/device/open.js'
import { SimulatedDriver } from '../core/driver/simulated/simulated-driver.js'
import { KeeperClient } from '../core/keeper/client.js'
import { Actor, socketFolderOf } from '../core/keeper/keeper.fixture.js'
import type { RegionInfo } from '../core/keeper/region.js'
import { type Keep, openKeep } from './keep.js'
import { type Held, isWhole, KeepProcess, type Place, SCRIPT } from './keep-process.fixture.js'
import { KeptModel } from './kept-model.fixture.js'

const NAMES = ['a', 'b', 'c', 'd']
const VERSIONS = ['v1', 'v2', 'v3']
const PROCESSES = 3
const SPARES = 2
const STORY_LINES = 60
const MOST_TRIES = 100
/** Memory is unmapped in the background, once the work that uses it is complete. */
const UNMAP_MS = 100
const KEEPER = { timeoutMs: 60_000 }
const CAPACITY = 8 * GiB
/** A step that takes longer hangs. */
const LONGEST_STEP_MS = 120_000
/** On a GPU, contexts of ended processes may leave some memory in use for a moment. */
const GPU_TOLERANCE_BYTES = 32 * MiB

export interface KillOptions {
  readonly kills: number
  readonly seed: number
  /** else the first GPU */
  readonly isSimulated: boolean
  /** after how many rounds all regions are closed, and all memory must be free */
  readonly roundsToDrain: number
}

/** Counts of events. */
export interface KillCounts {
  processes: number
  keepers: number
  successors: number
  /** hand-overs that went through */
  handovers: number
  /** regions whose fill has succeeded */
  filled: number
  /** contents that were compared */
  compared: number
  errors: Map<string, number>
}

/** Runs the program; throws if anything was lost, half, or left behind. */
export async function runKills(options: KillOptions): Promise<KillCounts> {
  const program = new KillProgram(options)
  try {
    await program.start()
    await program.run()
    return program.counts
  } finally {
    await program.end()
  }
}

class KillProgram {
  readonly counts: KillCounts = {
    processes: 0,
    keepers: 0,
    successors: 0,
    handovers: 0,
    filled: 0,
    compared: 0,
    errors: new Map(),
  }
  private readonly random: Random
  private readonly folder = socketFolderOf()
  private readonly place: Place
  private readonly model = new KeptModel()
  private readonly processes: KeepProcess[] = []
  private readonly spares: { readonly process: KeepProcess; readonly opened: Promise<void> }[] = []
  /** the smallest region: on a GPU more than may stay in use by others */
  private readonly unitBytes: number
  private keeper!: Actor
  private device!: Device
  private keep!: Keep
  private operator!: KeeperClient
  private freeBytes = 0
  /** whether the keeper was killed in this round */
  private isKeeperKilled = false
  private firstOfKeeper = 0
  /** the last events: the same seed makes the same choices, but not at the same moments */
  private readonly story: string[] = []

  constructor(private readonly options: KillOptions) {
    this.random = new Random(options.seed)
    this.unitBytes = options.isSimulated ? 2 * MiB : 2 * GPU_TOLERANCE_BYTES
    const machine = join(this.folder.folder, 'machine')
    mkdirSync(machine, { mode: 0o700 })
    const script = join(this.folder.folder, 'keep-process.mjs')
    const modules = dirname(dirname(createRequire(import.meta.url).resolve('koffi')))
    buildSync({
      entryPoints: [SCRIPT],
      outfile: script,
      bundle: true,
      platform: 'node',
      format: 'esm',
      external: ['koffi'],
    })
    this.place = {
      path: this.folder.path,
      machine: options.isSimulated ? machine : null,
      bundle: { script, modules },
    }
  }

  async start(): Promise<void> {
    const { path, machine } = this.place
    await this.startKeeper()
    this.device =
      machine === null ? openDevice() : openDevice(new SimulatedDriver({ machine, capacityBytes: CAPACITY }))
    this.freeBytes = this.device.memoryInfo().freeBytes
    this.keep = await openKeep(this.device, { path, ...KEEPER })
    this.operator = await KeeperClient.open({ path, ...KEEPER })
    for (let count = 0; count < PROCESSES; count++) await this.addProcess()
  }

  async run(): Promise<void> {
    const { kills, roundsToDrain } = this.options
    for (let round = 1; this.killed < kills; round++) {
      try {
        await this.round()
        if (round % roundsToDrain === 0) await this.drain()
      } catch (error) {
        throw new Error(`in round ${round}, after ${this.killed} kills\n${this.story.join('\n')}`, { cause: error })
      }
    }
    await this.drain()
  }

  async end(): Promise<void> {
    this.operator?.close()
    this.keep?.close()
    const all = [...this.processes, ...this.spares.map(each => each.process)]
    await Promise.all(all.map(each => each.kill()))
    await this.keeper?.kill()
    const { machine } = this.place
    if (machine !== null && this.device !== undefined) {
      assert.equal(this.device.memoryInfo().freeBytes, CAPACITY, 'after the end of all, all memory is free')
      const left = readdirSync(machine).filter(name => !/^(machine$|process-)/.test(name))
      assert.deepEqual(left, [], 'no file stays locked')
    }
    this.device?.close()
    this.folder.remove()
  }

  private tell(text: string): void {
    if (this.story.push(text) > STORY_LINES) this.story.shift()
  }

  private get killed(): number {
    const { processes, keepers, successors } = this.counts
    return processes + keepers + successors
  }

  /** All processes act at the same time, and one process or keeper is killed meanwhile. */
  private async round(): Promise<void> {
    const { random } = this
    this.isKeeperKilled = false
    const dice = random.below(100)
    const victim = dice < 80 ? random.below(PROCESSES) : -1
    const steps = this.processes.map((each, index) => this.act(each, index === victim))
    const disturbing =
      dice < 80 ? this.killProcess(this.processes[victim]) : dice < 88 ? this.killKeeper() : this.handOver()
    const listing = this.operator.list().then(KeptModel.checkAny)
    const ended = await within('a round', Promise.allSettled([...steps, disturbing, listing]))
    for (const each of ended) if (each.status === 'rejected') throw each.reason
    if (victim >= 0) {
      this.processes.splice(victim, 1)
      await this.addProcess()
    }
    if (this.isKeeperKilled) {
      for (const process of this.processes) await within('a reconnection', process.do('list'))
      this.model.restarted(await this.operator.list(), this.firstOfKeeper)
    }
    await this.compare()
    if (random.below(8) === 0) await this.drop()
  }

  /** One step of a process. */
  private async act(process: KeepProcess, isVictim: boolean): Promise<void> {
    const { random, model } = this
    const names = NAMES.filter(() => random.below(2) === 0)
    const [name, versionIndex, seed] = [NAMES[random.below(NAMES.length)], random.below(VERSIONS.length), random.next()]
    const version = VERSIONS[versionIndex]
    const bytes = (1 + versionIndex) * this.unitBytes - 1000
    const [dice, closing] = [random.below(100), model.anyHeld(process.pid, count => random.below(count))]
    const diesAt = isVictim && random.below(3) > 0 ? random.logUniform(1, 400) : null
    const { pid } = process
    this.tell(`${pid} acts ${dice} ${name} ${version} ${names}${diesAt === null ? '' : `, and dies at ${diesAt}`}`)
    try {
      if (closing !== undefined && random.below(3) > 0) {
        this.tell(`${pid} closes ${closing}`)
        await process.do('close', closing)
        model.closed(process.pid, closing)
      }
      if (diesAt !== null) await process.do('dieAt', diesAt)
      if (isVictim && dice < 15) await process.do('hang', name, version, bytes)
      else if (dice < 55) this.told(process, await process.do('region', name, version, bytes, seed))
      else if (dice < 75) this.told(process, await process.do('attach', name))
      else if (dice < 92)
        for (const each of await process.do('set', names, version, bytes, seed)) this.told(process, each)
      else this.told(process, await process.do('fail', name, version, bytes))
    } catch (error) {
      this.tell(`${pid}: ${(error as Error).message}`)
      this.checkError(error as Error & { code?: string }, isVictim)
    }
  }

  private told(process: KeepProcess, held: Held): void {
    if (!process.isRunning) return
    this.tell(`${process.pid} has ${JSON.stringify(held)}`)
    this.model.attached(process.pid, held)
    if (held.created) this.counts.filled++
  }

  private checkError(error: Error & { code?: string }, isVictim: boolean): void {
    const kind = error.name === 'Error' ? error.message : `${error.name} ${error.code}`
    const expected = ['given up', 'PoolError ERR_POOL', 'KeepError absent', 'KeepError unfinished']
    if (isVictim) expected.push('the process has ended')
    if (this.isKeeperKilled) expected.push('KeepError gone')
    if (!expected.includes(kind)) throw error
    this.counts.errors.set(kind, (this.counts.errors.get(kind) ?? 0) + 1)
  }

  /** Kills a process at any time, unless it has killed itself by then. */
  private async killProcess(process: KeepProcess): Promise<void> {
    await this.anyTime()
    await process.kill()
    this.tell(`${process.pid} is killed`)
    this.model.ended(process.pid)
    this.counts.processes++
  }

  private async killKeeper(): Promise<void> {
    await this.anyTime()
    this.isKeeperKilled = true
    this.tell('the keeper is killed')
    await this.keeper.kill()
    this.counts.keepers++
    await this.startKeeper()
  }

  /** Lets a keeper take over. The successor is killed at a numbered point, or the old keeper at any time, or none. */
  private async handOver(): Promise<void> {
    const { random, keeper: old } = this
    const how = ['undisturbed', 'killed at a point', 'the old one killed'][random.below(3)]
    const point = how === 'killed at a point' ? [String(1 + random.below(14))] : []
    const startMs = Date.now()
    const successor = new Actor(['successor', this.place.path, ...point])
    if (how === 'the old one killed') {
      await this.anyTime()
      await setTimeout(random.below(120))
      this.isKeeperKilled = isRunning(old)
      await old.kill()
      if (this.isKeeperKilled) this.counts.keepers++
    }
    const line = await successor.line()
    this.tell(`a successor, ${how}, says ${line}`)
    if (line === 'listens' && point.length === 0) {
      await old.ended
      this.keeper = successor
      if (this.isKeeperKilled) this.firstOfKeeper = startMs
      else this.counts.handovers++
      return
    }
    await successor.kill()
    if (point.length > 0) this.counts.successors++
    if (await this.isServed()) return
    this.isKeeperKilled = true
    await old.ended
    await this.startKeeper()
  }

  private async isServed(): Promise<boolean> {
    try {
      ;(await KeeperClient.open({ path: this.place.path })).close()
      return true
    } catch (error) {
      if (error instanceof KeepError && error.code === 'gone') return false
      throw error
    }
  }

  private async startKeeper(): Promise<void> {
    this.firstOfKeeper = Date.now()
    this.keeper = new Actor(['keeper', this.place.path])
    assert.equal(await this.keeper.line(), 'listens')
  }

  /** Some turns of the event loop, or some milliseconds. */
  private async anyTime(): Promise<void> {
    const { random } = this
    if (random.below(2) === 0) for (let turns = random.below(100); turns > 0; turns--) await setImmediate()
    else await setTimeout(random.below(40))
  }

  private async addProcess(): Promise<void> {
    while (this.spares.length < SPARES) this.spares.push(KeepProcess.start(this.place))
    const { process, opened } = this.spares.shift()!
    await within('the start of a process', opened)
    this.processes.push(process)
  }

  /** The list that the model expects. The keeper may first answer, and then read what others have sent before. */
  private async expectedList(): Promise<RegionInfo[]> {
    for (let tries = 1; ; tries++) {
      const list = await within('the list', this.operator.list())
      KeptModel.checkAny(list)
      try {
        this.model.check(list)
        return list
      } catch (error) {
        if (tries < MOST_TRIES) continue
        this.tell(list.map(textOf).join('\n'))
        throw error
      }
    }
  }

  /** Compares the list with the model, and reads each region that is ready. */
  private async compare(): Promise<void> {
    const list = await this.expectedList()
    this.tell(list.map(textOf).join('\n'))
    for (const { name, version, generation, state } of list) {
      if (state !== 'ready') continue
      const region = await this.keep.attach(name)
      assert.deepEqual([region.version, region.generation], [version, generation])
      assert.ok(await isWhole(region), `${name}, generation ${generation}`)
      region.close()
      this.counts.compared++
    }
    await this.keep.list()
  }

  private async drop(): Promise<void> {
    const { random, model, operator } = this
    const list = await this.expectedList()
    if (random.below(2) === 0) {
      this.tell('prune all')
      model.pruned(await operator.prune({ all: true }), list)
    } else {
      const [name, force] = [NAMES[random.below(NAMES.length)], random.below(2) === 0]
      if (!list.some(each => each.name === name && (force || each.state !== 'retired'))) return
      this.tell(`drop ${name}${force ? ' by force' : ''}`)
      await operator.drop(name, { force })
      model.dropped(name, list, force)
    }
    await this.compare()
  }

  /** Closes all regions: then nothing may be left. */
  private async drain(): Promise<void> {
    for (const process of this.processes) {
      await process.do('closeAll')
      this.model.closedAll(process.pid)
    }
    const list = await this.expectedList()
    this.model.pruned(await this.operator.prune({ all: true }), list)
    assert.deepEqual(await this.operator.list(), [])
    if (!this.options.isSimulated) await this.endProcesses()
    const least = this.freeBytes - (this.options.isSimulated ? 0 : GPU_TOLERANCE_BYTES)
    const freeBytes = () => this.device.memoryInfo().freeBytes
    for (let tries = 0; freeBytes() < least && tries < MOST_TRIES; tries++) await setTimeout(UNMAP_MS)
    assert.ok(freeBytes() >= least, `${freeBytes()} bytes are free, and at first ${this.freeBytes}`)
    while (this.processes.length < PROCESSES) await this.addProcess()
  }

  /** Their contexts take memory of the GPU. */
  private async endProcesses(): Promise<void> {
    const all = [...this.processes.splice(0), ...this.spares.splice(0).map(each => each.process)]
    for (const { pid } of all) this.model.ended(pid)
    await Promise.all(all.map(each => each.kill()))
  }
}

function textOf({ name, version, state, generation, readers, writer }: RegionInfo): string {
  return `${name} ${version} ${state} ${generation} of ${writer} read by ${readers}`
}

function isRunning({ process }: Actor): boolean {
  return process.exitCode === null && process.signalCode === null
}

/** Rejects if a promise takes too long. */
async function within<T>(what: string, promise: Promise<T>): Promise<T> {
  const controller = new AbortController()
  const late = setTimeout(LONGEST_STEP_MS, null, { signal: controller.signal, ref: false }).then(() => {
    throw new Error(`${what} hangs`)
  })
  late.catch(() => {})
  try {
    return await Promise.race([promise, late])
  } finally {
    controller.abort()
  }
}
