// A cache of keys and values in pages, as servers of language models have it: pages of one size from a block pool, a
// list of pages for each sequence, and a table of addresses on the device that grows in place. A sequence that does not
// fit is refused whole.
// docs/recipes/kv-cache.md explains it. In a clone: npm run build && node dist/examples/kv-cache.js

import { type DeviceBuffer, formatBytes, KiB, openDevice } from 'cuda-mempool'

const TOKENS_IN_PAGE = 16

using device = openDevice('auto')
using stream = device.createStream()
using pages = device.createBlockPool({ blockBytes: 32 * KiB, count: 64, maxCount: 128 })
using table = device.createGrowableBuffer({ bytes: '2MiB', capacityBytes: '64MiB', stream })

class Sequence implements Disposable {
  readonly pages: DeviceBuffer[] = []
  private tokens = 0

  /** False if there are not enough pages; then nothing has changed. */
  append(tokens: number): boolean {
    const needed = Math.ceil((this.tokens + tokens) / TOKENS_IN_PAGE) - this.pages.length
    if (needed > pages.availableBlocks) return false
    for (let page = 0; page < needed; page++) this.pages.push(pages.allocate({ stream }))
    this.tokens += tokens
    return true
  }

  [Symbol.dispose](): void {
    for (const page of this.pages) page.free()
  }
}

const sequences = Array.from({ length: 20 }, () => new Sequence())
const served = sequences.filter(sequence => sequence.append(100))
console.log(`${served.length} of ${sequences.length} sequences served, ${pages.availableBlocks} pages left`)

// An attention kernel reads the addresses of a sequence's pages.
using rows = table.array(BigUint64Array)
rows.write(BigUint64Array.from(served[0]!.pages, page => BigInt(page.ptr)))
table.grow('8MiB') // at the same address; the view stays valid
const isKept = (await rows.read())[0] === BigInt(served[0]!.pages[0]!.ptr)
console.log(`the table has ${formatBytes(table.byteLength)}, and ${isKept ? 'kept' : 'lost'} its rows`)

served.shift()![Symbol.dispose]() // evicted
console.log(`${pages.availableBlocks} pages left after an eviction`)
for (const sequence of served) sequence[Symbol.dispose]()
console.log(`${pages.stats().liveBuffers} pages held at the end`)
