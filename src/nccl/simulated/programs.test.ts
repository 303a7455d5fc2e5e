// Random programs of two ranks, compared with a model that runs them call by call.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Random } from '../../core/base/random.js'
import { seedsFrom } from '../../core/base/seeds.fixture.js'
import { CU_STREAM_CAPTURE_MODE_RELAXED } from '../../core/driver/constants.js'
import { NCCL_OPS, NCCL_RESULT, NCCL_TYPES } from '../constants.js'
import { openWorld, type SimulatedWorld } from './world.fixture.js'

const CELLS = 6
const STEPS = 60
const U32 = NCCL_TYPES.uint32.type

/** Two ranks with some numbers each, on the devices and in the model. */
class Program {
  private readonly ptrs: readonly number[]
  /** by rank: the numbers as they must be in the end */
  private readonly model: number[][]
  private readonly graphs: { readonly cell: number; readonly executables: readonly number[] }[] = []

  constructor(
    private readonly opened: SimulatedWorld,
    private readonly random: Random,
  ) {
    this.model = opened.world.ranks.map((_, rank) => Array.from({ length: CELLS }, (_, cell) => 10 * rank + cell))
    this.ptrs = opened.world.ranks.map((rank, number) => rank.place('uint32', this.model[number]))
  }

  async step(): Promise<void> {
    const { world } = this.opened
    switch (this.random.below(8)) {
      case 0:
      case 1:
        return this.reduce(this.cell())
      case 2:
        return this.exchange(this.cell(), this.cell())
      case 3:
        return this.broadcast(this.cell(), this.random.below(2))
      case 4:
        return this.fill(this.random.below(2), this.cell(), this.random.below(100))
      case 5:
        return this.graphs.length < 3 ? this.capture(this.cell()) : this.launch()
      case 6:
        return this.launch()
      case 7: {
        const { stream } = world.ranks[this.random.below(2)].enter()
        const { driver } = this.opened
        const act = this.random.below(3)
        if (act === 0) driver.cuStreamQuery(stream)
        else if (act === 1) driver.cuStreamSynchronize(stream)
        else driver.holdOperation(stream)
      }
    }
  }

  /** Compares the numbers of both ranks with the model. */
  check(message: string): void {
    for (const [number, rank] of this.opened.world.ranks.entries()) {
      assert.deepEqual(rank.read(this.ptrs[number], 'uint32', CELLS), this.model[number], message)
    }
  }

  private cell(): number {
    return this.random.below(CELLS)
  }

  private addUp(cell: number): void {
    const sum = (this.model[0][cell] + this.model[1][cell]) % 2 ** 32
    for (const cells of this.model) cells[cell] = sum
  }

  private async callReduce(cell: number): Promise<void> {
    await this.opened.world.group(({ comm, stream }, number) => {
      const ptr = this.ptrs[number] + 4 * cell
      this.opened.nccl.ncclAllReduce(ptr, ptr, 1, U32, NCCL_OPS.sum, comm, stream)
    })
  }

  private async reduce(cell: number): Promise<void> {
    await this.callReduce(cell)
    this.addUp(cell)
  }

  /** Each rank sends a number to the other, which puts it elsewhere. */
  private async exchange(from: number, to: number): Promise<void> {
    const { nccl, world } = this.opened
    await world.group(({ comm, stream }, number) => {
      nccl.ncclSend(this.ptrs[number] + 4 * from, 1, U32, 1 - number, comm, stream)
      nccl.ncclRecv(this.ptrs[number] + 4 * to, 1, U32, 1 - number, comm, stream)
    })
    const sent = this.model.map(cells => cells[from])
    for (const [number, cells] of this.model.entries()) cells[to] = sent[1 - number]
  }

  private async broadcast(cell: number, root: number): Promise<void> {
    const { nccl, world } = this.opened
    for (const [number, { comm, stream }] of world.ranks.entries()) {
      const ptr = this.ptrs[number] + 4 * cell
      assert.equal(nccl.ncclBroadcast(ptr, ptr, 1, U32, root, comm, stream), NCCL_RESULT.ncclSuccess)
    }
    await world.settle()
    for (const cells of this.model) cells[cell] = this.model[root][cell]
  }

  private fill(number: number, cell: number, value: number): void {
    const rank = this.opened.world.ranks[number].enter()
    rank.driver.cuMemsetD32Async(this.ptrs[number] + 4 * cell, value, 1, rank.stream)
    this.model[number][cell] = value
  }

  private async capture(cell: number): Promise<void> {
    const { driver, world } = this.opened
    for (const rank of world.ranks) driver.cuStreamBeginCapture(rank.enter().stream, CU_STREAM_CAPTURE_MODE_RELAXED)
    await this.callReduce(cell)
    const executables = world.ranks.map(rank =>
      driver.cuGraphInstantiate(driver.cuStreamEndCapture(rank.enter().stream)),
    )
    this.graphs.push({ cell, executables })
  }

  private launch(): void {
    if (this.graphs.length === 0) return
    const { cell, executables } = this.graphs[this.random.below(this.graphs.length)]
    for (const [number, rank] of this.opened.world.ranks.entries()) {
      rank.enter().driver.cuGraphLaunch(executables[number], rank.stream)
    }
    this.addUp(cell)
  }
}

test('random programs of collectives, messages, fills and graphs end as call by call', async () => {
  for (const seed of seedsFrom(1, 30, 1)) {
    const opened = await openWorld({}, { seed, progress: seed % 3 === 0 ? 'eager' : 'seeded' })
    const program = new Program(opened, new Random(seed))
    for (let step = 0; step < STEPS; step++) await program.step()
    program.check(`seed ${seed}`)
    await opened.world.close()
  }
})
