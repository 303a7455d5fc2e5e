// A cache of 576 MiB on a device with 256: buffers move to pinned host memory when room is short, first those whose
// last use is the oldest. A buffer has an address only within a use.
// In a clone: npm run build && node dist/examples/spill.js

import { MiB, openDevice, spillable } from 'cuda-mempool'

using device = openDevice('auto')
using host = device.createHostPool({ maxPoolBytes: '1GiB' })
using cache = spillable(device.createPool({ maxPoolBytes: '256MiB' }), { host })

const entries = Array.from({ length: 12 }, (_, index) => {
  const entry = cache.allocate(48 * MiB)
  using memory = entry.use()
  memory.fill(index)
  return entry
})
console.log(`${cache}`)
for (const [index, entry] of entries.entries()) {
  using memory = entry.use({ writes: false })
  if ((await memory.read(0, 1))[0] !== index) process.exitCode = 1
}
const { spills, returns } = cache.stats()
console.log(`${spills} moves to the host, ${returns} back`)
