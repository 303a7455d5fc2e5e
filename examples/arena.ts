// Scratch memory of a frame loop: handed out in a row and taken back all at once, without driver calls. Then an arena
// that is too small: the error names the remedy, or the driver's own allocation serves instead.
// In a clone: npm run build && node dist/examples/arena.js

import { fallback, formatBytes, MiB, OutOfMemoryError, openDevice } from 'cuda-mempool'

const FRAMES = 4
const TILES = 8

using device = openDevice('auto')
using stream = device.createStream()
using arena = device.createArenaPool({ bytes: 32 * MiB })

for (let frame = 0; frame < FRAMES; frame++) {
  const picture = arena.allocate(8 * MiB, stream)
  picture.fill(frame)
  const frameEnd = arena.mark()
  for (let tile = 0; tile < TILES; tile++) {
    const scratch = arena.allocate(16 * MiB, stream) // the same memory for each tile
    scratch.fill(tile)
    picture.copyFrom(scratch, tile, 0, 1)
    arena.rewind(frameEnd, stream) // scratch is stale from here on, picture is not
  }
  const tiles = await picture.read(0, TILES + 1)
  console.log(`frame ${frame}: tiles ${tiles.subarray(0, TILES).join(' ')}, the rest ${tiles[TILES]}`)
  arena.reset(stream)
}
const { allocations, reservedBytes } = arena.stats()
console.log(
  `${allocations} allocations from ${formatBytes(reservedBytes)}, ${formatBytes(arena.availableBytes)} available`,
)

const WANTED = 40_000_000
try {
  arena.allocate(WANTED)
} catch (error) {
  if (!(error instanceof OutOfMemoryError)) throw error
  console.log(error.message)
}
const pool = fallback(arena, device.createPlainPool())
using large = pool.allocate(WANTED)
large.fill(1)
console.log(`${formatBytes(large.byteLength)} from the driver instead, ${pool.fallbacks} time`)
