import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../../base/bytes.js'
import { TestDevice } from '../pool.fixture.js'
import { type Extent, HostCopies } from './host-copies.js'

const FIRST = 2 ** 40

/** Extents of these sizes side by side; each entry of `ranges` is the range of one. */
function sideBySide(sizes: readonly number[], ranges = sizes.map(() => 1)): Extent[] {
  let ptr = FIRST
  return sizes.map((bytes, index) => {
    const extent = { ptr, bytes, range: ranges[index], version: index }
    ptr += bytes
    return extent
  })
}

/** The places of these extents as offsets from the first one, and bytes; and the bytes of host memory. */
async function placesOf(extents: readonly Extent[]) {
  const copies = new HostCopies(new TestDevice().context)
  await copies.fit(extents, undefined, () => {})
  const places = copies.placesOf(extents).map(({ ptr, host }) => [ptr - FIRST, host.byteLength])
  return { copies, places }
}

describe('host memory for copies', () => {
  it('joins small neighbours, and large ones have pieces of at most 64 MiB', async () => {
    const { copies, places } = await placesOf(sideBySide([128 * KiB, 2 * MiB, 3 * MiB, 70 * MiB, 256, 512]))
    const large = 2 * MiB + 128 * KiB
    assert.deepEqual(places, [
      [0, large],
      [large, 3 * MiB],
      [large + 3 * MiB, 64 * MiB],
      [large + 67 * MiB, 6 * MiB],
      [large + 73 * MiB, 768],
    ])
    assert.equal(copies.bytes, large + 73 * MiB + 768)
    copies.drop(FIRST + large)
    assert.equal(copies.bytes, large + 70 * MiB + 768)
    copies.retain([])
    assert.equal(copies.bytes, 0)
  })

  it('begins a new piece after 8 MiB, and another copy at each gap and each range of addresses', async () => {
    const { places } = await placesOf(sideBySide(new Array(10).fill(1 * MiB)))
    assert.deepEqual(places, [
      [0, 8 * MiB],
      [8 * MiB, 2 * MiB],
    ])
    const apart = sideBySide([4 * KiB, 4 * KiB, 4 * KiB, 4 * KiB], [1, 1, 2, 2])
    assert.deepEqual((await placesOf(apart)).places, [
      [0, 8 * KiB],
      [8 * KiB, 8 * KiB],
    ])
    const gap = sideBySide([4 * KiB, 4 * KiB, 4 * KiB]).toSpliced(1, 1)
    assert.deepEqual((await placesOf(gap)).places, [
      [0, 4 * KiB],
      [8 * KiB, 4 * KiB],
    ])
  })

  it('makes two copies of neighbours that are apart on the host', async () => {
    const [first, second, third] = sideBySide([4 * KiB, 4 * KiB, 4 * KiB])
    const { copies } = await placesOf([first, third, second])
    const places = copies.placesOf([first, second])
    assert.deepEqual(
      places.map(({ ptr, host }) => [ptr - FIRST, host.byteOffset - places[0].host.byteOffset, host.byteLength]),
      [
        [0, 0, 4 * KiB],
        [4 * KiB, 8 * KiB, 4 * KiB],
      ],
    )
  })

  it('keeps copies that fit, in pieces of which all is used', async () => {
    const extents = sideBySide([1 * MiB, 1 * MiB, 1 * MiB, 5 * MiB])
    const { copies } = await placesOf(extents)
    const changed = [...extents.slice(0, 3), { ...extents[3], version: 7 }]
    copies.keepFor(changed)
    assert.deepEqual(
      changed.map(extent => copies.holds(extent)),
      [true, true, true, false],
    )
    await copies.fit(changed, undefined, () => {})
    assert.deepEqual([copies.holds(changed[3]), copies.bytes], [true, 8 * MiB])
    copies.drop(extents[1].ptr)
    assert.equal(copies.bytes, 8 * MiB, 'the others are in the same piece')
    const rest = changed.toSpliced(1, 1)
    copies.keepFor(rest)
    assert.deepEqual([rest.map(extent => copies.has(extent)), copies.bytes], [[false, false, true], 5 * MiB])
    await copies.fit(rest, undefined, () => {})
    assert.equal(copies.bytes, 7 * MiB)
    copies.retain([])
    assert.equal(copies.bytes, 0)
  })
})
