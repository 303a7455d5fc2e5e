import { assert } from '../../../src/core/base/assert.js'
import { newOrder, orderState } from '../../../src/core/order/shared-order.js'
import { StreamSlots } from '../../../src/core/order/stream-slots.js'
import type { Scenario } from '../stage.js'

const HANDLE = 77

export const scenarios: Record<string, Scenario> = {
  'nobody calls the driver for a stream that is destroyed': {
    begin: () => {
      const order = newOrder()
      let isDestroyed = false
      let slot = -1
      const owner = () => {
        const slots = new StreamSlots(orderState(order))
        slots.join()
        slot = slots.claim(HANDLE, true)
        if (!slots.stop(slot)) return
        isDestroyed = true
        slots.retire(slot)
      }
      const other = () => {
        const state = orderState(order)
        const slots = new StreamSlots(state)
        slots.join()
        if (slot === -1 || !slots.pin(slot)) return
        for (let look = 0; look < 3; look++) {
          assert(!isDestroyed, 'a stream that is pinned is there')
          assert(slots.isTicking(slot), 'a stream that is pinned can be marked')
          state.marked[slot]++
        }
        slots.unpin()
      }
      return { threads: [owner, other] }
    },
  },
  'a slot is pinned by the thread that had it before': {
    begin: () => {
      const state = orderState(newOrder())
      const [former, owner] = [new StreamSlots(state), new StreamSlots(state)]
      for (const slots of [former, owner]) slots.join()
      const slot = former.claim(HANDLE, true)
      former.stop(slot)
      former.retire(slot)
      former.free(slot)
      let isDestroyed = false
      const before = () => {
        if (!former.pin(slot)) return
        assert(!isDestroyed, 'a stream that is pinned is there')
        former.unpin()
      }
      const next = () => {
        owner.claim(HANDLE, true)
        owner.stop(slot)
        isDestroyed = true
        owner.retire(slot)
      }
      return { threads: [before, next] }
    },
  },
  'two threads claim two slots': {
    begin: () => {
      const order = newOrder()
      const claimed = new Set<number>()
      const claim = () => {
        const slots = new StreamSlots(orderState(order))
        slots.join()
        const slot = slots.claim(HANDLE, true)
        assert(slot !== -1 && !claimed.has(slot), 'a slot is one stream’s')
        claimed.add(slot)
      }
      return { threads: [claim, claim] }
    },
  },
}
