// Pieces and views on a simulated driver that refuses calls. Every call is refused in turn.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { MiB } from '../../../base/bytes.js'
import { CudaError } from '../../../base/errors.js'
import { CU_MEM_ACCESS_FLAGS_PROT_READWRITE } from '../../../driver/constants.js'
import { UNIT_BYTES } from '../../../heap/size-classes.js'
import { isRefused, TestDevice } from '../../pool.fixture.js'
import { MappedAccess } from '../mapped-access.js'
import { SegmentWatch } from '../segment-watch.js'
import { HomeRange } from './home-range.js'
import { ViewUses } from './last-uses.js'
import type { Piece } from './piece.js'
import { ViewAddresses } from './view-addresses.js'
import { type View, Views } from './views.js'

const STEP = 2 * MiB
const STEP_UNITS = STEP / UNIT_BYTES
const MOST_VIEWS = 8

/** Bytes of addresses that are reserved, and the address and bytes of each mapping. */
interface Granted {
  reserved: number
  readonly mapped: Map<number, number>
}

function setUp(mostViews = MOST_VIEWS) {
  const device = new TestDevice()
  const { driver } = device
  const granted: Granted = { reserved: 0, mapped: new Map() }
  const { cuMemAddressReserve, cuMemAddressFree, cuMemMap, cuMemUnmap } = driver
  driver.cuMemAddressReserve = (bytes, alignment) => {
    const base = cuMemAddressReserve.call(driver, bytes, alignment)
    granted.reserved += bytes
    return base
  }
  driver.cuMemAddressFree = (ptr, bytes) => {
    cuMemAddressFree.call(driver, ptr, bytes)
    granted.reserved -= bytes
  }
  driver.cuMemMap = (ptr, bytes, handle) => {
    cuMemMap.call(driver, ptr, bytes, handle)
    granted.mapped.set(ptr, bytes)
  }
  driver.cuMemUnmap = (ptr, bytes) => {
    cuMemUnmap.call(driver, ptr, bytes)
    for (const at of [...granted.mapped.keys()]) if (at >= ptr && at < ptr + bytes) granted.mapped.delete(at)
  }
  const access = new MappedAccess(device.context, () => {})
  const watch = new SegmentWatch()
  const home = new HomeRange(device.context, access, 64 * MiB, STEP, watch)
  const uses = new ViewUses(mostViews, new Float64Array(64), null)
  const views = new Views(device.context, access, uses, new ViewAddresses(device.context, 64 * MiB, STEP), watch)
  return { device, granted, home, uses, views }
}

type SetUp = ReturnType<typeof setUp>

/** Three pieces of two granules, and a shorter one. */
function createPieces({ home }: SetUp): Piece[] {
  const runs = [
    { start: 0, units: 6 * STEP_UNITS },
    { start: 6 * STEP_UNITS, units: STEP_UNITS },
  ]
  return home.create(runs, 2 * STEP_UNITS)
}

/** Maps two views and unmaps one; the driver may refuse any of it. */
function mapAndUnmap({ views }: SetUp, pieces: readonly Piece[]): void {
  let first: View | null = null
  isRefused(() => {
    first = views.map([pieces[0], pieces[2], pieces[3]])
  })
  isRefused(() => views.map([pieces[1], pieces[0]]))
  if (first !== null) isRefused(() => views.unmap(first!))
}

/** Asserts that views, pieces and the driver agree about what is mapped. */
function assertAgree({ granted, home, views }: SetUp): void {
  const all = [...views]
  let mappings = 0
  for (const view of all) {
    mappings += view.pieces.length
    for (const piece of view.pieces) assert.equal(views.of(piece).filter(other => other === view).length, 1)
  }
  assert.equal(views.mappings, mappings)
  for (const piece of home.pieces) {
    assert.ok(views.of(piece).every(view => all.includes(view)))
    assert.equal(granted.mapped.get(home.base + piece.start * UNIT_BYTES), piece.bytes, 'pieces stay at home')
  }
  for (const view of all.filter(({ isReady }) => isReady)) {
    let offset = 0
    for (const { bytes } of view.pieces) {
      assert.equal(granted.mapped.get(view.base + offset), bytes, 'a piece is mapped behind the one before it')
      offset += bytes
    }
  }
}

const BYTES = 7 * STEP

describe('views', () => {
  it('join pieces one behind another at addresses of their own', () => {
    const made = setUp()
    const { device, granted, home, views } = made
    const pieces = createPieces(made)
    const view = views.map([pieces[2], pieces[0]])
    assertAgree(made)
    assert.deepEqual([view.bytes, home.reservedBytes], [4 * STEP, BYTES])
    const driver = device.context.activate()
    driver.cuMemsetD8Async(home.base, 5, BYTES, 0)
    driver.cuMemsetD8Async(view.base, 9, 4 * STEP, 0)
    const seen = new Uint8Array(BYTES)
    driver.cuMemcpyDtoH(seen, home.base)
    const bytesOf = (piece: Piece) =>
      new Set(seen.subarray(piece.start * UNIT_BYTES, piece.start * UNIT_BYTES + piece.bytes))
    assert.deepEqual(
      pieces.map(piece => [...bytesOf(piece)]),
      [[9], [5], [9], [5]],
    )
    assert.equal(views.at(view.base + 4 * STEP - 1), view)
    assert.equal(views.at(view.base + 4 * STEP), null)
    views.unmap(view)
    assertAgree(made)
    assert.equal(granted.mapped.size, 4)
    assert.equal(views.at(view.base), null)
  })

  for (const code of [2, 999]) {
    for (const onwards of [false, true]) {
      it(`a call refused with ${code}${onwards ? ' and all later ones' : ''} leaves nothing mapped twice and loses nothing`, () => {
        let wasMet = true
        let refusals = 0
        for (let nth = 1; wasMet; nth++) {
          const made = setUp()
          const { device, granted, home, uses, views } = made
          const pieces = createPieces(made)
          const before = device.callCount
          device.driver.failCall({ call: '*', nth, code, onwards })
          mapAndUnmap(made, pieces)
          wasMet = device.callCount - before >= nth
          if (wasMet) refusals++
          device.driver.clearFaults()
          assertAgree(made)
          views.unmapIdle()
          assertAgree(made)
          assert.deepEqual([[...views], views.mappings, granted.mapped.size], [[], 0, 4], `call ${nth}`)
          // All numbers of views serve again.
          for (let count = 0; count < MOST_VIEWS; count++) {
            assert.equal(views.hasRoom(4, 2), true)
            views.noteBlock(views.map([pieces[count % 4], pieces[(count + 1) % 4]]))
          }
          assert.equal(views.hasRoom(4, 2), false)
          assert.deepEqual(
            [...uses.blocks],
            Array.from({ length: MOST_VIEWS }, () => 1),
          )
          views.close()
          home.close()
          device.context.destroyRest()
          assert.deepEqual([granted.reserved, granted.mapped.size, device.freeBytes()], [0, 0, device.totalBytes])
        }
        assert.ok(refusals > 10, `${refusals} calls`)
      })
    }
  }

  it('access may change while the driver refuses to unmap a view', () => {
    const made = setUp()
    const { device, views } = made
    const pieces = createPieces(made)
    const view = views.map([pieces[0], pieces[1]])
    device.driver.failCall({ call: 'cuMemUnmap', code: 999 })
    assert.throws(() => views.unmap(view), CudaError)
    views.map([pieces[1], pieces[2]])
    const before = device.calls('cuMemSetAccess')
    views.applyAccess(device.context.device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
    assert.equal(device.calls('cuMemSetAccess'), before + 2, 'one for each, also for the view that stays mapped')
    views.unmapIdle()
    assert.deepEqual([...views], [])
  })

  it('a view with a block, or whose last use the host has not seen complete, is not idle', () => {
    const made = setUp()
    const { uses, views } = made
    const pieces = createPieces(made)
    const view = views.map([pieces[0], pieces[1]])
    assert.equal(views.isIdle(view), true)
    views.noteBlock(view)
    assert.equal(views.isIdle(view), false)
    uses.noteFree(view.number, 3, 7)
    assert.equal(views.isIdle(view), false)
    views.unmapIdle()
    assert.deepEqual([...views], [view])
    uses['seen'][2] = 7 // the slot of key 3
    assert.equal(views.isIdle(view), true)
    views.unmapIdle()
    assert.deepEqual([...views], [])
  })

  it('the least recently used idle views go first, until there is room', () => {
    const made = setUp()
    const { uses, views } = made
    const pieces = createPieces(made)
    const all = Array.from({ length: MOST_VIEWS }, () => views.map([pieces[0], pieces[1]]))
    for (const view of [...all].reverse()) {
      views.noteBlock(view)
      if (view !== all[7]) uses.noteFree(view.number, 0, 0)
    }
    views.makeRoom(4, 2)
    assert.deepEqual(
      [...views],
      all.filter((_, index) => index !== 6),
      'the oldest one has a block',
    )
    views.makeRoom(4, 2)
    assert.equal([...views].length, MOST_VIEWS - 1)
  })

  it('many views have uses, and numbers of their own', () => {
    const made = setUp(100)
    const { uses, views } = made
    const [first, second] = createPieces(made)
    const all = Array.from({ length: 100 }, () => views.map([first, second]))
    assert.equal(views.hasRoom(4, 2), false)
    for (const view of all) views.noteBlock(view)
    assert.deepEqual(uses.blocks, new Int32Array(100).fill(1))
    for (const view of all) uses.noteFree(view.number, 0, 0)
    views.unmapIdle()
    assert.deepEqual([[...views], views.hasRoom(4, 2)], [[], true])
  })
})

/** Two runs of two pieces each: the mode twice, and for each run a handle and a mapping for each piece, and access. */
const CALLS_OF_GROWTH = 2 + 2 * (2 * 2 + 1)

describe('the home range', () => {
  for (const code of [2, 999]) {
    for (const onwards of [false, true]) {
      it(`a call refused with ${code}${onwards ? ' and all later ones' : ''} leaves no part of a growth behind`, () => {
        let wasMet = true
        for (let nth = 1; wasMet; nth++) {
          const made = setUp()
          const { device, granted, home } = made
          const kept = home.create([{ start: 20 * STEP_UNITS, units: STEP_UNITS }], STEP_UNITS)
          const before = device.callCount
          device.driver.failCall({ call: '*', nth, code, onwards })
          const runs = [0, 10].map(start => ({ start: start * STEP_UNITS, units: 5 * STEP_UNITS }))
          let isCreated = true
          try {
            home.create(runs, 2 * STEP_UNITS)
          } catch (error) {
            assert.ok(error instanceof CudaError)
            isCreated = false
          }
          wasMet = device.callCount - before >= nth
          const isEnd = nth === CALLS_OF_GROWTH // ends relaxed mode, and may be refused
          assert.equal(isCreated, !wasMet || isEnd, `call ${nth}`)
          device.driver.clearFaults()
          home.releaseUnused()
          const bytes = (isCreated ? 11 : 1) * STEP
          assert.deepEqual([home.reservedBytes, device.freeBytes()], [bytes, device.totalBytes - bytes])
          if (!isCreated) assert.deepEqual([home.pieces, granted.mapped.size], [kept, 1])
          assert.deepEqual(
            home.pieces.map(({ start }) => start / STEP_UNITS),
            isCreated ? [0, 3, 10, 13, 20] : [20],
          )
          home.close()
          device.context.destroyRest()
          assert.deepEqual([granted.reserved, granted.mapped.size, device.freeBytes()], [0, 0, device.totalBytes])
        }
      })
    }
  }
})
