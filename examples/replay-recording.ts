// Compares the memory that a recorded PyTorch run needs in this pool with the memory that PyTorch reserved. It does
// the work of `cuda-mempool replay` in a program, for example to watch a number in continuous integration.
// Run: npm run build && node dist/examples/replay-recording.js [FILE]

import { fileURLToPath } from 'node:url'
import { formatBytes, openDevice, parseDeviceChoice } from 'cuda-mempool'
import { SimulatedDriver } from 'cuda-mempool/simulated'
import { readSnapshot, replay } from 'cuda-mempool/trace'

const RECORDING = fileURLToPath(new URL('../../traces/mlp-train-stacks.pickle.gz', import.meta.url))
const file = process.argv[2] ?? RECORDING
const choice = parseDeviceChoice(process.env.CUDA_MEMPOOL_DEVICE ?? 'auto')
using device = openDevice(choice)
// Each pass opens a device of its own. With 'eager', only the recording's own work is pending on a simulated device.
const open = () => openDevice(device.simulated ? new SimulatedDriver({ progress: 'eager' }) : choice)

const trace = readSnapshot(file)
const report = await replay(trace, open, { policies: ['recorded', 'cuda-mempool'] })
console.log(`${trace.allocations} allocations, at most ${formatBytes(trace.peakRequestedBytes)} in use at once`)
for (const { policy, peakReservedBytes, failures } of report.runs) {
  const reserved = peakReservedBytes === null ? 'an unknown amount' : formatBytes(peakReservedBytes)
  console.log(`${policy}: ${reserved} reserved${failures > 0 ? `, ${failures} allocations failed` : ''}`)
}
