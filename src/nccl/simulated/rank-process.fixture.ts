// A rank in a process of its own. It makes the calls that its parent asks for.

import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads'
import { SimulatedDriver } from '../../core/driver/simulated/simulated-driver.js'
import { NCCL_OPS, NCCL_TYPES } from '../constants.js'
import { newId, RankOfTest, settled, stateOf } from '../nccl.fixture.js'
import { Cell } from '../nccl.js'
import { openSimulatedNccl } from './simulated-nccl.js'

const SCRIPT = fileURLToPath(import.meta.url)
const F32 = NCCL_TYPES.float32.type

/** A rank on the device of a driver of its own, with memory for four numbers. */
class OwnRank {
  /** 'eager', since a rank makes no calls while its parent asks others */
  private readonly driver = new SimulatedDriver({ progress: 'eager' })
  private readonly nccl = openSimulatedNccl(this.driver)
  private readonly rank: RankOfTest
  private readonly cell = new Cell()
  private readonly ptr: number

  constructor() {
    this.driver.cuInit()
    const context = this.driver.cuDevicePrimaryCtxRetain(0)
    this.driver.cuCtxSetCurrent(context)
    this.rank = new RankOfTest(this.driver, 0, context, this.driver.cuStreamCreate(1), this.cell)
    this.ptr = this.rank.allocate(16)
  }

  readonly deeds = {
    makeId: () => [...newId(this.nccl)],
    join: async (id: readonly number[], rank: number, ranks: number) => {
      this.begin(id, rank, ranks)
      return (await settled(this.nccl, [this.cell]))[0]
    },
    begin: (id: readonly number[], rank: number, ranks: number) => this.begin(id, rank, ranks),
    state: () => stateOf(this.nccl, this.rank.comm),
    settle: async () => (await settled(this.nccl, [this.cell]))[0],
    lastError: () => this.nccl.ncclGetLastError(this.rank.comm),
    write: (values: readonly number[]) => this.rank.write(this.ptr, 'float32', values),
    read: (count: number) => this.rank.read(this.ptr, 'float32', count),
    isIdle: () => this.driver.cuStreamQuery(this.rank.stream),
    allReduce: async (count: number) => {
      const { comm, stream } = this.rank
      this.nccl.ncclAllReduce(this.ptr, this.ptr, count, F32, NCCL_OPS.sum, comm, stream)
      return (await settled(this.nccl, [this.cell]))[0]
    },
    send: async (peer: number) => {
      this.nccl.ncclSend(this.ptr, 1, F32, peer, this.rank.comm, this.rank.stream)
      return (await settled(this.nccl, [this.cell]))[0]
    },
    receive: async (peer: number) => {
      this.nccl.ncclRecv(this.ptr, 1, F32, peer, this.rank.comm, this.rank.stream)
      return (await settled(this.nccl, [this.cell]))[0]
    },
    close: async () => {
      this.nccl.ncclCommFinalize(this.rank.comm)
      await settled(this.nccl, [this.cell])
      return this.nccl.ncclCommDestroy(this.rank.comm)
    },
    abort: () => this.nccl.ncclCommAbort(this.rank.comm),
  }

  private begin(id: readonly number[], rank: number, ranks: number): number {
    return this.nccl.ncclCommInitRankConfig(this.cell, ranks, Uint8Array.from(id), rank)
  }
}

type Deeds = OwnRank['deeds']
type Ask = { readonly name: keyof Deeds; readonly args: readonly never[] }

/** The process or the worker thread of a rank, as its parent sees it. */
export class RankElsewhere {
  private constructor(
    private readonly other: ChildProcess | Worker,
    private readonly ask: (question: Ask) => void,
  ) {}

  static async inProcess(): Promise<RankElsewhere> {
    const child = fork(SCRIPT, ['rank'])
    await once(child, 'message')
    return new RankElsewhere(child, question => child.send(question))
  }

  static async inThread(): Promise<RankElsewhere> {
    const worker = new Worker(SCRIPT, { workerData: 'rank' })
    await once(worker, 'message')
    return new RankElsewhere(worker, question => worker.postMessage(question))
  }

  async call<Name extends keyof Deeds>(
    name: Name,
    ...args: Parameters<Deeds[Name]>
  ): Promise<Awaited<ReturnType<Deeds[Name]>>> {
    this.ask({ name, args: args as never })
    const [{ error, result }] = await once(this.other, 'message')
    if (error !== undefined) throw Object.assign(new Error(error.message), error)
    return result
  }

  /** Ends the process with its work undone, or the thread. */
  async kill(): Promise<void> {
    if (this.other instanceof Worker) await this.other.terminate()
    else if (this.other.exitCode === null && this.other.signalCode === null) {
      this.other.kill('SIGKILL')
      await once(this.other, 'exit')
    }
  }
}

/** Answers questions of a parent. */
function serve(listen: (answer: (question: Ask) => void) => void, send: (answer: unknown) => void): void {
  const rank = new OwnRank()
  listen(async ({ name, args }) => {
    try {
      send({ result: await (rank.deeds[name] as (...args: never[]) => unknown)(...args) })
    } catch (error) {
      const { name: kind, message } = error as Error
      send({ error: { name: kind, message } })
    }
  })
  send('ready')
}

if (process.argv[2] === 'rank') {
  serve(
    answer => process.on('message', answer),
    message => process.send!(message),
  )
} else if (!isMainThread && workerData === 'rank') {
  serve(
    answer => parentPort!.on('message', answer),
    message => parentPort!.postMessage(message),
  )
}
