// Who holds the memory? Labels add the buffers of a running pool up, and a pool in debug mode knows the places of the
// calls.
// docs/recipes/leaks.md explains it. In a clone: npm run build && node dist/examples/leaks.js

import { type DeviceBuffer, MiB, openDevice } from 'cuda-mempool'

using device = openDevice('auto')
const pool = device.createPool()
const cache: DeviceBuffer[] = []
for (let request = 0; request < 10; request++) {
  cache.push(pool.allocate(2 * MiB, { label: 'kv' }))
  const scratch = pool.allocate(1 * MiB, { label: 'scratch' })
  if (request % 3 !== 0) scratch.free() // a path that forgets it
}
console.table(pool.liveByLabel())
const { heldBuffers } = pool.close()
console.log(`${heldBuffers} buffers were held at the end`)

const checked = device.createPool({ debug: { frames: 2 } })
const helper = (bytes: number) => checked.allocate(bytes)
const layer = () => helper(1000)
const attention = () => helper(2000)
layer()
layer()
attention()
for (const { name, buffers, bytes } of checked.liveBySite()) {
  console.log(`${bytes} B in ${buffers} from ${name.replace(/(\w+:\/)?\/\S*\//g, '')}`)
}
checked.close()
