// What a recorded PyTorch run would need under this pool, beside what PyTorch reserved: the command `cuda-mempool replay`
// from a program, for example to watch a number in continuous integration.
// Run: npm run build && node dist/examples/replay-recording.js [FILE]

import { fileURLToPath } from 'node:url'
import { formatBytes, openDevice, parseDeviceChoice } from 'cuda-mempool'
import { SimulatedDriver } from 'cuda-mempool/simulated'
import { readSnapshot, replay } from 'cuda-mempool/trace'

const RECORDING = fileURLToPath(new URL('../../traces/mlp-train-stacks.pickle.gz', import.meta.url))
const file = process.argv[2] ?? RECORDING
const choice = parseDeviceChoice(process.env.CUDA_MEMPOOL_DEVICE ?? 'auto')
using device = openDevice(choice)
// Each pass gets a device of its own. On a simulated one nothing but the recording's own work should be pending.
const open = () => openDevice(device.simulated ? new SimulatedDriver({ progress: 'eager' }) : choice)

const trace = readSnapshot(file)
const report = await replay(trace, open, { policies: ['recorded', 'cuda-mempool'], latency: false })
console.log(`${trace.allocations} allocations, at most ${formatBytes(trace.peakRequestedBytes)} in use at once`)
for (const { policy, peakReservedBytes, failures } of report.runs) {
  const reserved = peakReservedBytes === null ? 'an unknown amount' : formatBytes(peakReservedBytes)
  console.log(`${policy}: ${reserved} reserved${failures > 0 ? `, ${failures} allocations failed` : ''}`)
}
