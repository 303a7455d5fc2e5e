// Host time of growing a buffer where it is, through the public API, beside the driver calls that it takes, made bare
// and in the same process: cuMemCreate, cuMemMap and cuMemSetAccess of the same bytes behind the same bytes. The
// growth is given back between the steps, untimed. Run: node dist/bench/growable.js [--device D] [--smoke] [--save
// DIR]

import { formatBytes, GiB, MiB } from '../src/core/base/bytes.js'
import type { Device } from '../src/core/device/device.js'
import { CU_MEM_HANDLE_TYPE_NONE } from '../src/core/driver/constants.js'
import type { GrowableBuffer } from '../src/index.js'
import { headline, machineOf, median, save } from './machine.js'
import { deviceBenchmark, deviceOf, optionsOf } from './options.js'

const program = deviceBenchmark('what growing a buffer costs beside the calls of the driver')
const values = optionsOf(program)
const device = deviceOf(program)
const STEPS = values.smoke ? 20 : 500
const WARM_UP = values.smoke ? 5 : 100
/** from how much to how much */
const GROWTHS = [
  [2 * MiB, 4 * MiB],
  [1 * GiB, 1 * GiB + 2 * MiB],
  [8 * GiB, 8 * GiB + 2 * MiB],
  [1 * GiB, 1 * GiB + 64 * MiB],
] as const

/** Something that grows and shrinks in place. */
interface Subject {
  readonly name: string
  grow(): void
  shrink(): void
  close(): void
}

class BufferSubject implements Subject {
  readonly name = 'GrowableBuffer.grow'
  private readonly buffer: GrowableBuffer

  constructor(
    opened: Device,
    private readonly from: number,
    private readonly to: number,
  ) {
    this.buffer = opened.createGrowableBuffer({ bytes: from })
  }

  grow(): void {
    this.buffer.grow(this.to)
  }

  shrink(): void {
    this.buffer.shrink(this.from)
    this.buffer.settleSync()
  }

  close(): void {
    this.buffer.free()
    this.buffer.settleSync()
  }
}

/** The driver's calls alone, over one handle of `from` bytes. */
class DriverSubject implements Subject {
  readonly name = 'cuMemCreate + cuMemMap + cuMemSetAccess'
  private readonly bytes: number
  private readonly ptr: number
  private readonly first: number
  private last = 0
  private readonly driver
  private readonly deviceNumber: number

  constructor(
    opened: Device,
    private readonly from: number,
    private readonly to: number,
  ) {
    this.driver = opened.driver
    this.deviceNumber = opened.context.device
    this.bytes = Math.floor(opened.totalBytes / MiB / 512) * 512 * MiB // whole granules, whatever their size
    this.ptr = this.driver.cuMemAddressReserve(this.bytes, 0)
    this.first = this.map(0, from)
  }

  grow(): void {
    this.last = this.map(this.from, this.to - this.from)
  }

  shrink(): void {
    this.driver.cuMemUnmap(this.ptr + this.from, this.to - this.from)
    this.driver.cuMemRelease(this.last)
  }

  close(): void {
    this.driver.cuMemUnmap(this.ptr, this.from)
    this.driver.cuMemRelease(this.first)
    this.driver.cuMemAddressFree(this.ptr, this.bytes)
  }

  private map(offset: number, bytes: number): number {
    const handle = this.driver.cuMemCreate(bytes, this.deviceNumber, CU_MEM_HANDLE_TYPE_NONE)
    this.driver.cuMemMap(this.ptr + offset, bytes, handle)
    this.driver.cuMemSetAccess(this.ptr + offset, bytes, [this.deviceNumber])
    return handle
  }
}

/** Microseconds of each step, the subjects taking turns so that both see the same machine. */
function stepsOf(subjects: readonly Subject[]): number[][] {
  const times = subjects.map((): number[] => [])
  for (let step = 0; step < WARM_UP + STEPS; step++) {
    for (const [index, subject] of subjects.entries()) {
      const start = performance.now()
      subject.grow()
      const us = (performance.now() - start) * 1e3
      if (step >= WARM_UP) times[index].push(us)
      subject.shrink()
    }
  }
  return times
}

const rows = GROWTHS.filter(([, to]) => 2 * to <= device.memoryInfo().freeBytes).map(([from, to]) => {
  const subjects = [new BufferSubject(device, from, to), new DriverSubject(device, from, to)]
  const times = stepsOf(subjects)
  for (const subject of subjects) subject.close()
  const us = times.map(median)
  return {
    workload: `${formatBytes(from)} → +${formatBytes(to - from)}`,
    overheadUs: Number((us[0] - us[1]).toFixed(2)),
    subjects: subjects.map(({ name }, index) => ({
      name,
      medianUs: Number(us[index].toFixed(2)),
      leastUs: Number(Math.min(...times[index]).toFixed(2)),
    })),
  }
})

const machine = machineOf(device)
console.log(headline(machine, 'the driver rows are not a GPU’s'))
console.log(`medians of ${STEPS} steps, µs to grow; least in brackets`)
for (const { workload, overheadUs, subjects } of rows) {
  console.log(`\n${workload}: ${overheadUs} µs above the driver calls`)
  for (const { name, medianUs, leastUs } of subjects) {
    console.log(`  ${name.padEnd(44)}${medianUs.toFixed(2).padStart(10)}   (${leastUs.toFixed(2)})`)
  }
}
save(values.save, 'growable', { machine, parameters: { steps: STEPS, warmUp: WARM_UP }, rows })
device.close()
