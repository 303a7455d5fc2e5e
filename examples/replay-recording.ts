// Compares the memory that a recorded PyTorch run needs in this pool with the memory that PyTorch reserved. It does
// the work of `cuda-mempool replay` in a program, for example to watch a number in continuous integration.
// In a clone: npm run build && node dist/examples/replay-recording.js [FILE]

import { fileURLToPath } from 'node:url'
import { formatBytes } from 'cuda-mempool'
import { readRecording, replay, replayDevices } from 'cuda-mempool/trace'

// A recording that comes with the package.
const RECORDING = new URL('traces/mlp-train-stacks.pickle.gz', import.meta.resolve('cuda-mempool/package.json'))
const trace = readRecording(process.argv[2] ?? fileURLToPath(RECORDING))
// The simulated device; `replayDevices(trace, 0)` replays on the first GPU.
const report = await replay(trace, replayDevices(trace), { policies: ['recorded', 'cuda-mempool'] })
console.log(`${trace.allocations} allocations, at most ${formatBytes(trace.peakRequestedBytes)} in use at once`)
for (const { policy, peakReservedBytes, failures } of report.runs) {
  const reserved = peakReservedBytes === null ? 'an unknown amount' : formatBytes(peakReservedBytes)
  console.log(`${policy}: ${reserved} reserved${failures > 0 ? `, ${failures} allocations failed` : ''}`)
}
