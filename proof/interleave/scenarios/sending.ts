// Blocks that one thread allocates and other threads free: each block returns to the owner of its record.

import { Double, Word } from '../../../src/core/heap/records.js'
import { CLASSES } from '../../../src/core/heap/size-classes.js'
import type { SharedPool } from '../../../src/core/pool/shared/shared-pool.js'
import type { TransferredBuffer } from '../../../src/core/pool/transferred-buffer.js'
import { type Cast, isOverNow, mayBeCut, mayDie, pause, type Scenario } from '../stage.js'
import { BYTES, checkAll, servedPool } from './shared-pool.js'

/**
 * Two threads free the blocks of a third, which allocates meanwhile. One of the two may die, and a pool server clears
 * up behind it.
 */
function sendingBack(seed: number, dies: boolean): Cast {
  const made = servedPool(4 + (seed % 5))
  const { pool, server, held, take } = made
  const sent = held.map(buffer => buffer.transfer())
  const consume = () => {
    const own = made.attach()
    for (let one = sent.shift(); one !== undefined; one = sent.shift()) own.adopt(one).free()
  }
  const allocate = () => {
    for (let turn = 0; turn < 5; turn++) {
      const buffer = pool.allocate(BYTES)
      take(buffer, 1)
      held.push(buffer)
    }
  }
  const sweep = () => {
    for (let turn = 0; turn < 3; turn++) server.sweep()
  }
  return {
    threads: dies ? [allocate, () => mayDie(consume), consume, sweep] : [allocate, consume, consume],
    end: () => {
      for (const buffer of held) if (!buffer.freed) buffer.free()
      checkAll(made)
    },
  }
}

/** A thread sends blocks to a second thread, which frees them while the first thread dies, and after its death. */
function sendingToTheDead(): Cast {
  const made = servedPool(1)
  const { server } = made
  made.held[0].free()
  const sent: TransferredBuffer[] = []
  /** written and read around a message, which is seen after all that was stored before it */
  const messages = new Int32Array(new SharedArrayBuffer(4))
  const allocate = () => {
    const own = made.attach()
    for (const buffer of [1, 2, 3].map(() => own.allocate(BYTES))) {
      const transferred = buffer.transfer()
      Atomics.add(messages, 0, 1)
      sent.push(transferred)
    }
    while (sent.length > 0) pause()
    for (let turn = 0; turn < 2; turn++) own.allocate(BYTES)
  }
  const free = () => {
    const own = made.attach()
    while (sent.length > 0 || !isOverNow(0)) {
      const one = sent.shift()
      Atomics.load(messages, 0)
      if (one === undefined) pause()
      else own.adopt(one).free()
    }
  }
  const keep = () => {
    while (!isOverNow(0)) server.serve()
    for (let turn = 0; turn < 3; turn++) {
      server.sweep()
      pause()
    }
  }
  return { threads: [() => mayDie(allocate), free, keep], end: () => checkAll(made) }
}

/** A thread has ended. A second thread frees one of its blocks while the pool server clears up. */
function freeingForTheDead(): Cast {
  const made = servedPool(0)
  const { pool, server, meanwhile, held } = made
  const allocate = () => {
    const own = made.attach(false, meanwhile)
    held.push(pool.adopt(own.allocate(BYTES).transfer()))
  }
  const notice = () => void server['state'].registry.findDead()
  return {
    threads: [allocate, notice, () => held[0].free(), () => server['buryDead']()],
    heirs: { 1: 0, 2: 1, 3: 1 },
    end: () => checkAll(made),
  }
}

/** A thread dies while it takes out a block that was sent back to it. */
function dyingReceiver(): Cast {
  const made = servedPool(0)
  const { pool, meanwhile } = made
  const work = () => {
    const own = made.attach(false, meanwhile)
    const [, buffer] = [own.allocate(BYTES), own.allocate(BYTES)]
    pool.adopt(buffer.transfer()).free()
    mayDie(() => own.allocate(BYTES))
  }
  return { threads: [work], end: () => checkAll(made) }
}

/** A thread has died that sent blocks back: their receiver takes them out while the pool server clears up. */
function buryingTheSender(): Cast {
  const made = servedPool(4)
  const { pool, server, serving, held, take } = made
  const sent = held.splice(0, 2).map(buffer => buffer.transfer())
  const send = () => {
    const own = made.attach()
    for (const one of sent) own.adopt(one).free()
  }
  const receive = () => {
    while (!isOverNow(0)) pause()
    for (let turn = 0; turn < 3; turn++) {
      const buffer = pool.allocate(BYTES)
      take(buffer, 1)
      held.push(buffer)
    }
  }
  const keep = () => {
    while (!isOverNow(0)) pause()
    server.sweep()
    while (!isOverNow(1)) server.serve()
  }
  const end = () => {
    serving.isThread = false
    for (const buffer of held) buffer.free()
    checkAll(made)
  }
  serving.isThread = true
  return { threads: [() => mayDie(send), receive, keep], end }
}

/** A pool whose blocks a second object sends back, with a third one that takes them away as the pool server does. */
function drainedPool() {
  const made = servedPool(6)
  const other = made.attach(false, made.meanwhile)
  const state = made.newState()
  const { words, doubles } = state.records
  // the others keep them apart
  const sent = made.held.filter((_, index) => index % 2 === 0).map(buffer => buffer.transfer())
  return {
    ...made,
    other,
    state,
    send: () => {
      for (const one of sent) other.adopt(one).free()
    },
    hold: (from: SharedPool, thread: number) => {
      const buffer = from.allocate(BYTES)
      made.take(buffer, thread)
      made.held.push(buffer)
    },
    drain: () =>
      state.locked(() => {
        for (const record of state.caches.drainAll(0, CLASSES)) {
          state.memory.giveToHeap(record, words[(record << 4) | Word.key] - 1, doubles[(record << 3) | Double.stamp])
        }
      }),
  }
}

/** A thread takes out blocks that a second thread sends back, while a pool server takes them away for the second. */
function drained(): Cast {
  const made = drainedPool()
  const { pool, other, state, server, serving, held, hold } = made
  let working = 2
  let drains = 0
  const receive = () => {
    for (let turn = 0; turn < 4; turn++) hold(pool, 1)
    working--
  }
  const send = () => {
    made.send()
    while (drains < 2) pause()
    for (let turn = 0; turn < 2; turn++) hold(other, 2)
    working--
  }
  const keep = () => {
    while (working > 0) {
      server.serve()
      if (drains++ < 3) made.drain()
    }
  }
  const end = () => {
    serving.isThread = false
    pool.check()
    for (const buffer of held) if (!buffer.freed) buffer.free()
    state.registry.forget(state.thread)
    other.close()
    checkAll(made)
  }
  serving.isThread = true
  return { threads: [receive, send, keep], end }
}

/**
 * A call is cut short that takes out what was sent back, and is made again; the pool server may take that away for
 * another thread in between.
 */
function cutShort(isDrained: boolean): Cast {
  const { pool, other, send, drain, hold } = drainedPool()
  const work = () => {
    send()
    mayBeCut(() => hold(pool, 1))
    pool.processDeferred() // gives up the lock if the call has left it
    if (isDrained) {
      drain()
      for (let turn = 0; turn < 3; turn++) hold(other, 2)
    }
    for (let turn = 0; turn < 4; turn++) hold(pool, 1)
  }
  return { threads: [work] }
}

export const scenarios: Record<string, Scenario> = {
  'blocks that two threads send back are handed out once': {
    isLarge: true,
    begin: seed => sendingBack(seed, false),
  },
  'blocks of a thread that dies go back once': {
    isLarge: true,
    begin: seed => sendingBack(seed, true),
  },
  'blocks that are sent to a thread that dies go back once': {
    isLarge: true,
    begin: sendingToTheDead,
    mostSteps: 200_000,
  },
  'blocks of a dead thread are taken out by their receiver or the pool server': {
    isLarge: true,
    begin: buryingTheSender,
    mostSteps: 200_000,
  },
  'what is sent to a thread is taken out by it or the pool server': {
    isLarge: true,
    begin: drained,
    mostSteps: 200_000,
  },
  'a block is freed once whose thread has ended': { begin: freeingForTheDead },
  'a block that was being taken out when its thread died goes back once': { begin: dyingReceiver },
  'a block that was being taken out when the call was cut short is had once': { begin: () => cutShort(false) },
  'a block whose call was cut short is had once, though the pool server takes it away': { begin: () => cutShort(true) },
}
