// Copies from one GPU to another, in bytes per second, beside the driver's own calls: before either has access to the
// other's memory, with pools opened to the other device, and with peer access for plain allocations. In this order,
// since access cannot be taken away. Run: node dist/bench/peers.js [--device D] [--smoke] [--save DIR] D is a GPU,
// which copies to the next one, or 'simulated'.

import { formatBytes, GiB, KiB, MiB } from '../src/core/base/bytes.js'
import type { Device } from '../src/core/device/device.js'
import { openDevices } from '../src/core/device/open.js'
import type { DeviceBuffer } from '../src/core/pool/buffer.js'
import type { Pool } from '../src/core/pool/pool.js'
import { headline, machineOf, median, save } from './machine.js'
import { deviceBenchmark, openedBy, optionsOf } from './options.js'

const program = deviceBenchmark('copies from one GPU to the next, by the ways there are')
const values = optionsOf(program)
const [devices, firstIndex] = openedBy(program, choice =>
  typeof choice === 'number' ? [openDevices(), choice] : [openDevices(choice), 0],
)
const SIZES = values.smoke ? [4 * KiB, 1 * MiB] : [64 * KiB, 1 * MiB, 16 * MiB, 256 * MiB, 1 * GiB]
const BATCHES = values.smoke ? 2 : 7
const BATCH_BYTES = values.smoke ? 2 * MiB : 4 * GiB
const MOST_COPIES = values.smoke ? 2 : 200

/** One way to copy `source`, on the first device, to `target`, on the second one, in the target's stream. */
interface Subject {
  readonly name: string
  copy(target: DeviceBuffer, source: DeviceBuffer): void
}

const OURS: Subject = { name: 'buffer.copyFrom', copy: (target, source) => target.copyFrom(source) }
const PEER: Subject = {
  name: 'cuMemcpyPeerAsync',
  copy: (target, source) => {
    const { context, byteLength, stream } = target
    const driver = context.activate()
    driver.cuMemcpyPeerAsync(target.ptr, context.handle, source.ptr, source.context.handle, byteLength, stream.handle)
  },
}
/** Only where the second device has access to the source. */
const UNIFIED: Subject = {
  name: 'cuMemcpyAsync',
  copy: (target, source) => {
    const driver = target.context.activate()
    driver.cuMemcpyDtoDAsync(target.ptr, source.ptr, target.byteLength, target.stream.handle)
  },
}

/** Median bytes per second of each subject, for each size, over memory of these pools. */
function measure(access: string, from: Pool, to: Pool, stage: readonly Subject[]) {
  const stream = second.createStream()
  const rows = SIZES.map(bytes => {
    const [source, target] = [from.allocate(bytes), to.allocate(bytes, stream)]
    source.fill(SIZES.indexOf(bytes) + 1)
    source.stream.synchronize()
    const copies = Math.max(2, Math.min(MOST_COPIES, Math.ceil(BATCH_BYTES / bytes)))
    const rates = stage.map((): number[] => [])
    for (let batch = 0; batch <= BATCHES; batch++) {
      for (const [index, subject] of stage.entries()) {
        const start = performance.now()
        for (let copy = 0; copy < copies; copy++) subject.copy(target, source)
        stream.synchronize()
        // The first batch of each warms up and does not count.
        if (batch > 0) rates[index].push((copies * bytes * 1000) / (performance.now() - start))
      }
    }
    const checksum = target.readSync(bytes - 1)[0]
    if (checksum !== SIZES.indexOf(bytes) + 1) throw new Error(`${access}, ${bytes} bytes: the copy did not arrive`)
    source.free()
    target.free()
    const subjects = stage.map(({ name }, index) => ({ name, bytesPerSecond: Math.round(median(rates[index])) }))
    return { access, bytes, copies, subjects, checksum }
  })
  stream.close()
  return rows
}

function pools(open: (device: Device) => Pool): readonly [Pool, Pool] {
  return [open(first), open(second)]
}

const [first, second] = [devices[firstIndex], devices[(firstIndex + 1) % devices.length]]
if (first === undefined || first === second || !second.canAccessPeer(first) || !first.canAccessPeer(second)) {
  console.log(`this needs two GPUs with a way to each other, one of them ${firstIndex}; there are ${devices.length}`)
} else {
  const rows = measure('none', ...pools(device => device.createPool()), [OURS, PEER])

  const opened = pools(device => device.createPool())
  opened[0].setAccess(second, 'readWrite')
  opened[1].setAccess(first, 'readWrite')
  rows.push(...measure('setAccess on both pools', ...opened, [OURS, PEER, UNIFIED]))

  first.enablePeerAccess(second)
  second.enablePeerAccess(first)
  const plain = pools(device => device.createPlainPool())
  rows.push(...measure('enablePeerAccess, plain allocations', ...plain, [OURS, PEER, UNIFIED]))
  rows.push(...measure('both', ...opened, [OURS, PEER, UNIFIED]))

  const machine = machineOf(first)
  const between = { ...machine, device: `${first.name} to ${second.name}` }
  console.log(headline(between, 'no rate is a GPU’s'))
  console.log(`medians of ${BATCHES} batches, GB/s`)
  for (const access of new Set(rows.map(row => row.access))) {
    console.log(`\naccess: ${access}`)
    const mine = rows.filter(row => row.access === access)
    console.log(`  ${''.padEnd(10)}${mine[0].subjects.map(({ name }) => name.padStart(20)).join('')}`)
    for (const { bytes, subjects } of mine) {
      const rates = subjects.map(({ bytesPerSecond }) => (bytesPerSecond / 1e9).toFixed(1).padStart(20))
      console.log(`  ${formatBytes(bytes).padEnd(10)}${rates.join('')}`)
    }
  }
  save(values.save, 'peers', { machine, parameters: { batches: BATCHES, batchBytes: BATCH_BYTES }, rows })
}
for (const device of devices) device.close()
