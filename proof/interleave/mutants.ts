// Bugs that are planted one at a time, by replacing a place of one file of the project, and which a scenario must
// notice. The file is long because there are many bugs.

export interface Mutant {
  readonly name: string
  readonly file: string
  /** found once in the file */
  readonly find: string
  readonly replace: string
  /** a second place of the file, and what comes there */
  readonly also?: readonly [find: string, replace: string]
  /** the scenario that notices it */
  readonly scenario: string
  /** the processor on which it shows, by default x64 */
  readonly arch?: 'arm64'
  /** the first seed of the search, so that the search is short; by default 1 */
  readonly seed?: number
}

/** First seeds of the search for bugs that seed 1 and the next ones do not show. */
const SEEDS: Readonly<Record<string, number>> = {
  'whether a batch is complete is read by a plain load': 7,
  'a stream that is pinned takes no mark once its end has begun': 147,
  'a thread waits for its own reset to reset': 8,
  'a thread waits for its own reset': 2,
  'a queue is emptied although its thread is inside': 16,
  'a queue is emptied through an open biased lock': 16,
  'a lock is taken without compare-and-swap': 15,
  'a lock that was waited for is taken without compare-and-swap': 15,
  'a lock is released with a plain store': 12,
  'a block is taken away although it is live': 5,
  'streams are met without compare-and-swap': 39,
  'a dead holder is waited for': 2,
  'a lock that was taken over is said to be whole': 26,
  'a lock is taken over from the living': 28,
  'acquisitions of a lock are not counted': 3334,
  'two threads bury one': 26,
  'a number is given away without compare-and-swap': 23,
  'threads that had a number are not counted': 385,
  'a thread is described before its start is noted': 149,
  'a number is freed before its start time is cleared': 149,
  'a thread that looks buries without compare-and-swap': 141,
  'a number is taken over without compare-and-swap': 276,
  'a dead number is given away without compare-and-swap': 57,
  'asked is said before the question is there': 5,
  'answered is said before the answer is there': 3,
  'units are taken without compare-and-swap': 7,
  'aligned units are taken without compare-and-swap': 12,
  'units of another epoch are handed out': 3724,
  'a stack is not closed while it is reset': 12,
  'a stack is open before the new epoch is known': 5,
  'a reset is claimed without compare-and-swap': 8,
  'a dead resetter is waited for': 17,
  'what a dead resetter left is not undone': 19,
  'a stream is ended without a look at the pins': 147,
  'a slot is pinned after the lock is left': 4798,
  'the owner of a slot is looked at before its life': 118578,
  'a stream is closed to others after the pins are looked at': 53,
  'a buffer is adopted without compare-and-swap': 506,
  'a block is taken back without the lock': 76,
  'two threads begin one batch': 12,
  'a batch is counted before it has its sender': 12,
  'a batch is emptied before it is complete': 3,
  'a batch is complete before its last entry is there': 2,
  'a block is in a queue before its owner word says so': 12,
  'a block that a dead thread has sent is claimed without compare-and-swap': 23,
  'a block that another thread has by now is claimed for a dead one': 6,
  'a block is taken back that the pool server has taken out': 14,
  'the pool server takes a block out that its thread had taken out when it died': 205,
  'a thread takes a block out that is not on its way': 57,
  'a queue is taken out through a shut biased lock': 222,
  'an entry is emptied before its block is cached': 205,
  'a block is claimed without a look at its owner word': 4,
  'a block is claimed before the biased lock is entered': 73,
  'the biased lock is left before a block is claimed': 219,
  'a block is cached before its stamp is noted': 116,
  'that a block is cached is said by a plain store': 68,
  'the pool server makes no barrier': 62,
  'the pool server makes the barrier before it shuts': 282,
  'the biased locks are shut by a plain store': 39,
  'a thread looks, then says that it is inside': 114,
  'a biased lock is left by a plain store': 3473,
  'the pool server looks, then shuts': 46,
  'a thread that stays inside is taken for one outside': 2500,
  'the flag of the biased locks is read by a plain load': 1250,
  'a thread looks, then says that it is inside and makes a barrier': 312,
  'a thread makes no barrier where it should': 62,
  'a block is taken away through an open biased lock': 5,
  'a block is taken away although its thread is inside': 1449,
  'the biased locks are opened before a block is taken away': 208,
  'biased locks are opened after the lock is left': 29,
  'announced uses stay with what is given back late': 260,
  'memory that was taken for a view looks free': 420,
  'a repair forgets the blocks in views': 64,
  'a repair takes the parts of a block for free memory': 64,
  'nothing is counted again after a takeover': 120,
  'heaps are not mended after a takeover': 120,
  'a block is live before it has an owner': 170,
  'a thread looks without the lock whether the pool is closed': 28,
  'a dead thread’s question is kept': 763,
  'a thread whose call was cut short stays inside its biased lock': 8,
  'figures are published after the lock is left': 100_237,
  'a number is given away before the answer to leave is there': 73,
  'a call that was cut short keeps the lock': 9,
  'the late answer to a call that was cut short is taken for the next one': 49,
}

/** Bugs of one file, which one scenario notices. */
function inFile(
  file: string,
  scenario: string,
  bugs: readonly (readonly [name: string, find: string, replace: string, arch?: 'arm64'])[],
): Mutant[] {
  return bugs.map(([name, find, replace, arch]) => ({
    name,
    file,
    find,
    replace,
    scenario,
    ...(arch === undefined ? {} : { arch }),
    ...(SEEDS[name] === undefined ? {} : { seed: SEEDS[name] }),
  }))
}

const LOCK = 'src/core/threads/robust-lock.ts'
const ROSTER = 'src/core/threads/thread-registry.ts'
const CHANNEL = 'src/core/threads/request-channel.ts'
const BUMP = 'src/core/heap/shared-bump.ts'
const SLOTS = 'src/core/order/stream-slots.ts'
const REMOTE_FREES = 'src/core/pool/shared/remote-frees.ts'
const POOL = 'src/core/pool/shared/shared-pool.ts'
const OWNERSHIP = 'src/core/pool/shared/block-ownership.ts'
const CLIENT = 'src/core/pool/shared/server-client.ts'
const CACHE = 'src/core/pool/shared/thread-cache.ts'
const STACKS = 'src/core/pool/caching/stream-caches.ts'
const BIASED_LOCK = 'src/core/threads/biased-lock.ts'
const THREAD_CACHES = 'src/core/pool/shared/thread-caches.ts'
const STATE = 'src/core/pool/shared/shared-state.ts'
const SERVER = 'src/core/pool/shared/pool-server.ts'
const GROUP_ORDER = 'src/core/pool/caching/captures/group-order.ts'
const BACKING = 'src/core/pool/backing/virtual-backing.ts'
const PARTS = 'src/core/heap/lent-parts.ts'

const LAUNCHES = 'launches of a group never overlap, though a thread may die'
const JOINS = 'a thread dies anywhere beside a join in a view'
const DIES = 'a thread dies anywhere, and all that it had goes back'
const CUT = 'a program whose calls are cut short anywhere'
const COMES = 'threads come and go, and each has its own answers'
const NAMES = 'a thread is reclaimed under its own name'
const GROWS = 'new memory has its address when it is handed out'

const TAKEN_OUT = 'what is sent to a thread is taken out by it or the pool server'
const FREED = 'a block is freed once whose thread has ended'
const CLAIMED = 'a block of a dead thread is taken out or claimed'
const RECEIVER_DIES = 'a block that was being taken out when its thread died goes back once'
const TAKEN_ONCE = 'a cached block is taken or taken away'
const CUT_OUT = 'a block that was being taken out when the call was cut short is had once'
const CUT_DOOR = 'what a thread caches whose call was cut short can be taken away'
const CLOSES = 'a thread that comes while a pool is closed is refused or served'
const BESIDE_LOCK = 'biased locks that the pool server has shut stay shut, whoever takes the lock'
const SUCCESSORS = 'a thread that ended inside its biased lock is outside, and so is the next one of its number'
const FRONT = 'what a thread has the pool server does not take'
const BIASED_LOCK_HOLDS = 'a biased lock lets one of both have a block'
const FENCED = 'a biased lock whose threads make barriers lets one of both have a block'
const SHUT = `Atomics.store(this.words, 0, 1)
    this.barrier?.()
    for (let thread = 1; thread <= MOST_WORKERS; thread++) {
      stuck[thread] = this.staysInside(thread, stuck[thread] === 1 ? 0 : MOST_WAITS) ? 1 : 0
    }
`
const SHUT_LATE = `for (let thread = 1; thread <= MOST_WORKERS; thread++) {
      stuck[thread] = this.staysInside(thread, stuck[thread] === 1 ? 0 : MOST_WAITS) ? 1 : 0
    }
    Atomics.store(this.words, 0, 1)
    this.barrier?.()
`

export const MUTANTS: readonly Mutant[] = [
  ...inFile(LOCK, 'a lock lets one thread in', [
    [
      'a lock is taken without compare-and-swap',
      'return Atomics.compareExchange(words, index, seen, (seen + ACQUISITION) | this.me) === seen ? 0 : this.wait()',
      'Atomics.store(words, index, (seen + ACQUISITION) | this.me)\n    return 0',
    ],
    [
      'a lock that was waited for is taken without compare-and-swap',
      'if (Atomics.compareExchange(words, index, seen, mine) === seen) return owner',
      'Atomics.store(words, index, mine)\n        return owner',
    ],
    [
      'a lock is released with a plain store',
      'Atomics.and(words, index, ~(OWNER | WAITERS))',
      '(words[index] = words[index] & ~(OWNER | WAITERS)) | WAITERS',
      'arm64',
    ],
  ]),
  ...inFile(THREAD_CACHES, FRONT, [
    ['a block is taken away although it is live', 'if (phaseOf(ownerWord) !== Phase.cached || !', 'if (!'],
  ]),
  ...inFile(THREAD_CACHES, TAKEN_OUT, [
    [
      'a queue is emptied through an open biased lock',
      'this.biasedLock.shut()\n    if (!this.biasedLock.isOut(thread)) return []',
      '',
    ],
    ['a queue is emptied although its thread is inside', 'if (!this.biasedLock.isOut(thread)) return []\n', '\n'],
  ]),
  ...inFile(THREAD_CACHES, 'a thread breaks no block that was taken away from it', [
    [
      'a thread is not told what was taken away from it',
      'Atomics.add(losses, thread * LINE_WORDS, 1)\n',
      'losses[0] = 0\n',
    ],
  ]),
  ...inFile(CACHE, 'a thread breaks no block that was taken away from it', [
    [
      'a thread does not look what was taken away from it',
      'if (losses === this.losses) return',
      'if (losses >= 0) return',
    ],
  ]),
  ...inFile(THREAD_CACHES, 'two threads meet two streams', [
    [
      'streams are met without compare-and-swap',
      'Atomics.compareExchange(this.limit, 0, known, slot + 1)',
      'Atomics.store(this.limit, 0, slot + 1)',
    ],
  ]),
  ...inFile(LOCK, 'a lock is taken over from the dead', [
    ['a dead holder is waited for', '|| registry.isDead(owner)', ''],
    ['a lock that was taken over is said to be whole', '=== seen) return owner', '=== seen) return 0'],
    [
      'a lock is taken over from the living',
      "=== 'timed-out') registry.hasDied(owner)",
      "=== 'timed-out') registry.bury(owner)",
    ],
  ]),
  ...inFile(LOCK, 'a lock is not taken from whoever has the number of the dead', [
    ['acquisitions of a lock are not counted', 'const ACQUISITION = 256', 'const ACQUISITION = 0'],
  ]),
  ...inFile(LOCK, 'a thread whose call was cut short takes its own lock over', [
    ['a thread waits for itself', ' || owner === me ', ' '],
  ]),
  ...inFile(ROSTER, 'a thread that has ended is known as dead, although the system gives its number to another', [
    [
      'the start time of a thread is not noted',
      'Atomics.store(this.words, this.startOf(worker), threadStart(id))',
      'threadStart(id)',
    ],
  ]),
  ...inFile(ROSTER, 'of those who bury a thread one cleans up', [
    [
      'two threads bury one',
      'return isThere(word) && this.replace(worker, word, word | DEAD)',
      'return isThere(word) && Atomics.store(this.words, this.first + worker, word | DEAD) !== 0',
    ],
  ]),
  ...inFile(ROSTER, 'a number is one thread’s, whoever looks meanwhile', [
    [
      'a number is given away without compare-and-swap',
      'if ((word & ID) === 0 && this.replace(worker, word, word | id)) return this.described(worker, id)',
      'if ((word & ID) !== 0) continue\n      Atomics.store(this.words, this.first + worker, word | id)\n      return this.described(worker, id)',
    ],
    ['threads that had a number are not counted', 'return (word + TURN) &', 'return word &'],
    [
      'a thread is described before its start is noted',
      'if ((word & ID) === 0 && this.replace(worker, word, word | id)) return',
      'if ((word & ID) === 0 && this.replace(worker, word, word | id | DESCRIBED)) return',
    ],
  ]),
  ...inFile(ROSTER, 'a number is one thread’s, whoever looks meanwhile', [
    ['a number is freed before its start time is cleared', '& ~(ID | DESCRIBED | DEAD)', '& ~(ID | DEAD)'],
  ]),
  ...inFile(ROSTER, 'a dead thread’s number is taken over by one, or given away', [
    [
      'a thread that looks buries without compare-and-swap',
      'return this.replace(worker, word, word | DEAD) || this.isDead(worker)',
      'Atomics.store(this.words, this.first + worker, word | DEAD)\n    return true',
    ],
  ]),
  ...inFile(ROSTER, 'a dead thread’s number is taken over by one, or given away', [
    [
      'a number is taken over without compare-and-swap',
      'if (word >= 0 || !this.replace(worker, word, afterTurn(word) | id)) continue // another thread was first',
      'if (word >= 0) continue\n      Atomics.store(this.words, this.first + worker, afterTurn(word) | id)',
    ],
    [
      'a dead number is given away without compare-and-swap',
      'this.replace(worker, word, afterTurn(word))\n  }',
      'Atomics.store(this.words, this.first + worker, afterTurn(word))\n  }',
    ],
  ]),
  ...inFile(CHANNEL, 'every question has its own answer', [
    [
      'asked is said before the question is there',
      'this.write(place, question)\n    Atomics.store(words, place, Status.asked)',
      'Atomics.store(words, place, Status.asked)\n    this.write(place, question)',
    ],
    [
      'answered is said before the answer is there',
      'this.write(place, answer)\n    Atomics.store(words, place, Status.answered)',
      'Atomics.store(words, place, Status.answered)\n    this.write(place, answer)',
    ],
  ]),
  ...inFile(CHANNEL, 'every question has its own answer', [
    [
      'a question does not ring',
      'Atomics.store(words, place, Status.asked)\n    this.doorbell.ring()',
      'Atomics.store(words, place, Status.asked)',
    ],
  ]),
  ...inFile(BUMP, 'a stack hands out each unit once in an epoch', [
    [
      'units are taken without compare-and-swap',
      'if (Atomics.compareExchange(words, Word.top, top, top + units) !== top) continue',
      'Atomics.store(words, Word.top, top + units)',
    ],
    [
      'aligned units are taken without compare-and-swap',
      'if (Atomics.compareExchange(words, Word.top, top, start + units) !== top) continue',
      'Atomics.store(words, Word.top, start + units)',
    ],
  ]),
  ...inFile(BUMP, 'a stack is reset while threads take from it', [
    [
      'units of another epoch are handed out',
      'return loadAcquire(words, Word.epoch) === epoch ? top : Refusal.ended',
      'return top',
    ],
    ['a stack is not closed while it is reset', 'if (top < 0) return Refusal.closed\n      if', 'if'],
    [
      'a stack is open before the new epoch is known',
      'this.onEpoch(epoch)\n        Atomics.store(words, Word.top, this.firstUnit)',
      'Atomics.store(words, Word.top, this.firstUnit)\n        this.onEpoch(epoch)',
    ],
  ]),
  ...inFile(BUMP, 'two threads reset a stack', [
    [
      'a reset is claimed without compare-and-swap',
      'const owner = Atomics.compareExchange(words, Word.resetter, 0, me)',
      'const owner = Atomics.load(words, Word.resetter)\n      if (owner === 0) Atomics.store(words, Word.resetter, me)',
    ],
  ]),
  ...inFile(BUMP, 'a stack survives the death of whoever resets it', [
    ['a dead resetter is waited for', 'owner === me || registry.hasDied(owner)) {', 'owner === me) {'],
    [
      'what a dead resetter left is not undone',
      'if (epoch === Atomics.load(words, Word.closedIn)) this.flip()',
      'if (epoch === Atomics.load(words, Word.closedIn)) return',
    ],
  ]),
  ...inFile(BUMP, 'a stack survives a reset that is cut short', [
    [
      'a thread waits for its own reset',
      'owner === me || (slept && owner !== 0',
      '(slept && owner !== me && owner !== 0',
    ],
    ['a thread waits for its own reset to reset', 'owner === me || registry.hasDied(owner)', 'registry.hasDied(owner)'],
  ]),
  ...inFile(SLOTS, 'nobody calls the driver for a stream that is destroyed', [
    [
      'a stream is ended without a look at the pins',
      'if (isOpen) this.awaitPins(slot)\n    return isOpen',
      'return isOpen',
    ],
    [
      'a slot is pinned after the lock is left',
      'if (isOpen) Atomics.store(state.pins, me, slot + 1)\n    this.release()',
      'this.release()\n    if (isOpen) Atomics.store(state.pins, me, slot + 1)',
    ],
    [
      'a stream is closed to others after the pins are looked at',
      'Atomics.store(state.lives, slot, Life.closing)\n    }\n    this.release()\n    if (isOpen) this.awaitPins(slot)\n    return',
      '}\n    this.release()\n    if (isOpen) this.awaitPins(slot)\n    Atomics.store(state.lives, slot, Life.closing)\n    return',
    ],
    [
      'a stream that is pinned takes no mark once its end has begun',
      '(owners[slot] === this.me || pins[this.me] === slot + 1)',
      'owners[slot] === this.me',
    ],
  ]),
  ...inFile(SLOTS, 'a slot is pinned by the thread that had it before', [
    [
      'the owner of a slot is looked at before its life',
      'const life = Atomics.load(state.lives, slot)\n    if (state.owners[slot] === me && life === Life.open)',
      'if (state.owners[slot] === me && state.lives[slot] === Life.open)',
    ],
  ]),
  ...inFile(SLOTS, 'two threads claim two slots', [['the lock of the slots is not taken', 'this.lock?.acquire()', '']]),
  ...inFile(OWNERSHIP, 'a buffer is adopted by one thread', [
    [
      'a buffer is adopted without compare-and-swap',
      'if (!this.isKnown(record) || Atomics.compareExchange(words, index, waiting, mine) !== waiting) return false',
      'if (!this.isKnown(record) || words[index] !== waiting) return false\n    words[index] = mine',
    ],
    [
      'the claim of a wrong generation is not taken back',
      'Atomics.store(words, index, waiting) // another generation',
      '// another generation',
    ],
  ]),
  ...inFile(POOL, FREED, [
    [
      'a block is taken back without the lock',
      'return state.locked(() => state.registry.isAlive(owner) || !caches.remoteFrees.takeBack(record, owner))',
      'return state.registry.isAlive(owner) || !caches.remoteFrees.takeBack(record, owner)',
    ],
  ]),
  ...inFile(REMOTE_FREES, 'every block that is sent arrives once', [
    [
      'two threads begin one batch',
      'if (Atomics.compareExchange(words, batch, 0, this.thread) !== 0) continue',
      'if (Atomics.load(words, batch) !== 0) continue\n      Atomics.store(words, batch, this.thread)',
    ],
    [
      'a batch is counted before it has its sender',
      'if (Atomics.compareExchange(words, batch, 0, this.thread) !== 0) continue\n      this.announce(thread, index)',
      'this.announce(thread, index)\n      if (Atomics.compareExchange(words, batch, 0, this.thread) !== 0) continue',
    ],
    [
      'a batch that is being filled is passed over',
      'words[this.batchAt(this.oldest)] === 0)',
      '(words[this.batchAt(this.oldest)] & COMPLETE) === 0)',
    ],
    [
      'a batch is emptied before it is complete',
      'return (loadAcquire(this.words, batch) & COMPLETE) !== 0',
      'return loadAcquire(this.words, batch) !== 0',
    ],
    [
      'a thread does not look at what was sent to the one before it',
      'this.oldest = (Atomics.load(this.begun, thread * LINE_WORDS) - BATCHES) | 0',
      'this.oldest = Atomics.load(this.begun, thread * LINE_WORDS)',
    ],
    [
      'a batch is complete before its last entry is there',
      'storeReleaseBoth(this.ownerWords, (record << 4) | Word.owner, sent, words, entry, record)\n    next[thread] = entry + 1\n    if (((entry + 1) & (BATCH_WORDS - 1)) === 0) storeRelease(words, entry + 1 - BATCH_WORDS, this.thread | COMPLETE)\n',
      'if (((entry + 1) & (BATCH_WORDS - 1)) === 0) storeRelease(words, entry + 1 - BATCH_WORDS, this.thread | COMPLETE)\n    storeReleaseBoth(this.ownerWords, (record << 4) | Word.owner, sent, words, entry, record)\n    next[thread] = entry + 1\n',
    ],
  ]),
  ...inFile(REMOTE_FREES, 'every block that is sent arrives once', [
    [
      'a block is in a queue before its owner word says so',
      'storeReleaseBoth(this.ownerWords, (record << 4) | Word.owner, sent, words, entry, record)',
      'storeReleaseBoth(words, entry, record, this.ownerWords, (record << 4) | Word.owner, sent)',
    ],
    [
      'whether a batch is complete is read by a plain load',
      'return (loadAcquire(this.words, batch) & COMPLETE) !== 0',
      'return (this.words[batch] & COMPLETE) !== 0',
      'arm64',
    ],
    [
      'what a dead thread has begun is never complete',
      'if (words[batch] === thread) Atomics.store(words, batch, thread | COMPLETE)',
      'if (words[batch] === -thread) Atomics.store(words, batch, thread | COMPLETE)',
    ],
  ]),
  ...inFile(REMOTE_FREES, CLAIMED, [
    [
      'a block that a dead thread has sent is claimed without compare-and-swap',
      'return isIts && Atomics.compareExchange(ownerWords, index, held, 0) === held',
      'if (isIts) Atomics.store(ownerWords, index, 0)\n    return isIts',
      'arm64',
    ],
    [
      'a block that another thread has by now is claimed for a dead one',
      'const isIts = phaseOf(held) === Phase.sent && workerOf(held) === thread',
      'const isIts = phaseOf(held) === Phase.sent || workerOf(held) !== thread',
    ],
  ]),
  ...inFile(BACKING, JOINS, [
    ['memory that was taken for a view looks free', '    this.heap.records.claim(record)\n', ''],
  ]),
  ...inFile(PARTS, JOINS, [
    ['a repair forgets the blocks in views', '  return [...blocks]\n', '  return []\n'],
    ['a repair takes the parts of a block for free memory', 'if (!parts.has(record) && !isSlab)', 'if (!isSlab)'],
  ]),
  ...inFile(REMOTE_FREES, FREED, [
    [
      'a block is taken back that the pool server has taken out',
      'return Atomics.compareExchange(this.words, entry, record, 0) === record',
      'Atomics.store(this.words, entry, 0)\n    return true',
    ],
  ]),
  ...inFile(REMOTE_FREES, RECEIVER_DIES, [
    [
      'the pool server takes a block out that its thread had taken out when it died',
      'const isSent = this.isSent(record)\n',
      'const isSent = true\n',
    ],
  ]),
  ...inFile(CACHE, CUT_OUT, [
    ['a thread takes a block out that is not on its way', 'if (!remoteFrees.isSent(record)) {', 'if (record < 0) {'],
  ]),
  ...inFile(CACHE, TAKEN_OUT, [
    [
      'a queue is taken out through a shut biased lock',
      'if (!biasedLock.enter()) return\n    remoteFrees.noteArrivals()',
      'biasedLock.enter()\n    remoteFrees.noteArrivals()',
    ],
    [
      'the biased lock is left before a queue is taken out',
      'remoteFrees.noteArrivals()\n    this.left = 0',
      'remoteFrees.noteArrivals()\n    biasedLock.leave()\n    this.left = 0',
    ],
  ]),
  ...inFile(CACHE, RECEIVER_DIES, [
    [
      'an entry is emptied before its block is cached',
      'storeRelease(words, (record << 4) | Word.owner, ((block.tag >> 3) << 12) | this.cached)\n      storeRelease(entries, entry, 0)',
      'storeRelease(entries, entry, 0)\n      storeRelease(words, (record << 4) | Word.owner, ((block.tag >> 3) << 12) | this.cached)',
    ],
  ]),
  ...inFile(CACHE, FRONT, [
    [
      'a block is claimed without a look at its owner word',
      'if (words[base | Word.owner] !== (((tag >> 3) << 12) | this.cached)) return false\n',
      '',
    ],
    [
      'a block is claimed before the biased lock is entered',
      'if (!biasedLock.enter()) return false\n    const block = stack.top\n    const isMine = this.own(block)',
      'const block = stack.top\n    const isMine = this.own(block)\n    biasedLock.enter()',
    ],
    [
      'the biased lock is left before a block is claimed',
      'const block = stack.top\n    const isMine = this.own(block)',
      'const block = stack.top\n    biasedLock.leave()\n    const isMine = this.own(block)',
    ],
    [
      'a block is cached before its stamp is noted',
      'this.doubles[(record << 3) | Double.stamp] = mark + 1\n    storeRelease(this.words, (record << 4) | Word.owner, ((tag >> 3) << 12) | this.cached)',
      'storeRelease(this.words, (record << 4) | Word.owner, ((tag >> 3) << 12) | this.cached)\n    this.doubles[(record << 3) | Double.stamp] = mark + 1',
    ],
    [
      'that a block is cached is said by a plain store',
      'storeRelease(this.words, (record << 4) | Word.owner, ((tag >> 3) << 12) | this.cached)\n    // Nothing',
      'this.words[(record << 4) | Word.owner] = ((tag >> 3) << 12) | this.cached\n    // Nothing',
      'arm64',
    ],
  ]),
  ...inFile(STACKS, 'a record that comes back is another block', [
    ['an object that is still in a stack is used again', ' || known.state === State.cached', ''],
  ]),
  ...inFile(BIASED_LOCK, BIASED_LOCK_HOLDS, [
    ['the pool server makes no barrier', 'this.barrier?.()\n', '\n'],
    [
      'the pool server makes the barrier before it shuts',
      'Atomics.store(this.words, 0, 1)\n    this.barrier?.()',
      'this.barrier?.()\n    Atomics.store(this.words, 0, 1)',
    ],
    [
      'the biased locks are shut by a plain store',
      'Atomics.store(this.words, 0, 1)\n    this.barrier?.()',
      'this.words[0] = 1',
    ],
    [
      'a thread looks, then says that it is inside',
      'words[index] = 1\n      if (loadAcquire(words, 0) === 0) return true',
      'const isOpen = loadAcquire(words, 0) === 0\n      words[index] = 1\n      if (isOpen) return true',
    ],
    [
      'a biased lock is left by a plain store',
      'storeRelease(this.words, this.index, 0)',
      'this.words[this.index] = 0',
      'arm64',
    ],
    ['the pool server looks, then shuts', SHUT, SHUT_LATE],
    [
      'a thread that stays inside is taken for one outside',
      'if (looks >= SPINS + waits) return true',
      'if (looks >= SPINS + waits) return false',
    ],
    ['the biased locks stay shut', 'if (this.words[0] !== 0) this.mend()', 'if (this.words[0] === 2) this.mend()'],
  ]),
  ...inFile(BIASED_LOCK, SUCCESSORS, [
    [
      'a thread that died inside its biased lock stays there',
      'if (!registry.isAlive(thread)) return false\n      if (looks < SPINS) continue\n      if (registry.hasDied(thread)) return false',
      'if (looks < SPINS) continue',
    ],
    [
      'a thread begins inside where the one of its number has died',
      'Atomics.store(this.words, this.index, 0) // an earlier',
      '// an earlier',
    ],
  ]),
  ...inFile(BIASED_LOCK, FRONT, [
    [
      'the flag of the biased locks is read by a plain load',
      'if (loadAcquire(words, 0) === 0)',
      'if (words[0] === 0)',
      'arm64',
    ],
  ]),
  ...inFile(BIASED_LOCK, FENCED, [
    [
      'a thread looks, then says that it is inside and makes a barrier',
      'Atomics.store(words, index, 1)\n      if (Atomics.load(words, 0) === 0) return true',
      'const isOpen = Atomics.load(words, 0) === 0\n      Atomics.store(words, index, 1)\n      if (isOpen) return true',
    ],
    ['a thread makes no barrier where it should', 'Atomics.store(words, index, 1)\n', 'words[index] = 1\n'],
  ]),
  ...inFile(THREAD_CACHES, FRONT, [
    ['a block is taken away through an open biased lock', 'biasedLock.shut()\n    const ownerWord', 'const ownerWord'],
  ]),
  ...inFile(THREAD_CACHES, TAKEN_ONCE, [
    [
      'a block is taken away although its thread is inside',
      ' || !biasedLock.isOut(thread) || Atomics.load(words, index) !== ownerWord',
      '',
    ],
    [
      'the biased locks are opened before a block is taken away',
      'Atomics.store(words, index, 0)\n',
      'biasedLock.open()\n    Atomics.store(words, index, 0)\n',
    ],
  ]),
  ...inFile(STATE, BESIDE_LOCK, [
    [
      'biased locks are opened after the lock is left',
      'this.caches.biasedLock.open()\n    this.lock.release()',
      'this.lock.release()\n    this.caches.biasedLock.open()',
    ],
  ]),
  ...inFile(SERVER, DIES, [
    [
      'announced uses stay with what is given back late',
      'this.central.deferred.takeUses(record) // covered',
      '// covered',
    ],
  ]),
  ...inFile(STATE, DIES, [
    ['nothing is counted again after a takeover', 'this.caches.recount()\n', '\n'],
    ['heaps are not mended after a takeover', 'this.memory.rebuild()\n', '\n'],
  ]),
  ...inFile(STATE, DIES, [
    [
      'a block is live before it has an owner',
      "words[(record << 4) | Word.owner] = ownerWordOf(tag, thread, Phase.live)\n    words[record << 4] = tag // until here the block is the heap's",
      'words[record << 4] = tag\n    words[(record << 4) | Word.owner] = ownerWordOf(tag, thread, Phase.live)',
    ],
  ]),
  ...inFile(STATE, CLOSES, [
    [
      'a thread looks without the lock whether the pool is closed',
      'this.locked(() => this.figures[Figure.server]) === CLOSED',
      'this.figures[Figure.server] === CLOSED',
    ],
  ]),
  ...inFile(SERVER, DIES, [
    ['a dead thread’s question is kept', 'this.forgetRequest(thread)\n        this.bury', 'this.bury'],
  ]),
  ...inFile(CLIENT, CUT_DOOR, [
    [
      'a thread whose call was cut short stays inside its biased lock',
      'state.caches.biasedLock.leave()\n    state.lock',
      'state.lock',
    ],
  ]),
  ...inFile(SERVER, GROWS, [
    [
      'figures are published after the lock is left',
      'this.publishFigures()\n          this.state.release()',
      'this.state.release()\n          this.publishFigures()',
    ],
  ]),
  ...inFile(SERVER, COMES, [
    [
      'a number is given away before the answer to leave is there',
      'this.groups.giveBack(thread, false)\n    return sum',
      'this.groups.giveBack(thread, false)\n    this.state.registry.forget(thread)\n    return sum',
    ],
  ]),
  ...inFile(SERVER, NAMES, [
    ['a thread is reclaimed under the name of an earlier one', 'registry.nameOf(thread) !== name || ', ''],
  ]),
  ...inFile(CLIENT, CUT, [
    ['a call that was cut short keeps the lock', 'state.lock.dropStale()\n', '\n'],
    [
      'the late answer to a call that was cut short is taken for the next one',
      'if (state.channel.isLate(state.thread)) {',
      'if (question === null) {',
    ],
  ]),
  {
    name: 'the stamp of a launch is read before it',
    file: GROUP_ORDER,
    find: 'this.begin(call, graph, stream, UNTIL_NEXT)',
    replace: 'this.begin(call, graph, stream, this.clocks.marked[stream.slot] + 1)',
    also: ['const stamp = this.clocks.marked[state[At.launchSlot]] + 1', 'const stamp = state[At.launchStamp]'],
    scenario: LAUNCHES,
    seed: 418,
  },
  {
    name: 'the lock of a group is left before the launch',
    file: GROUP_ORDER,
    find: 'this.begin(call, graph, stream, UNTIL_NEXT)',
    replace: 'this.begin(call, graph, stream, UNTIL_NEXT)\n      this.release()',
    also: ['// Read after the launch', 'this.acquire()\n      // Read after the launch'],
    scenario: LAUNCHES,
    seed: 633,
  },
]

/** Changes that are no bugs, with the reason: they cost time, and change no result on either kind of processor. */
export const EQUIVALENT: Readonly<Record<string, string>> = {
  'a waiter of the lock is not woken': 'the waiter looks again after some milliseconds',
  'the bit of the waiters is lost when a lock is taken': 'the others look again after some milliseconds',
  'an answer wakes nobody': 'the asker looks again after a millisecond',
  'the pool server does not ask the system whether a thread inside its biased lock lives':
    'it goes on after 20 ms, and takes what the thread had once that is known as dead',
  'nobody looks whether the thread lives that a block is sent to':
    'the pool server looks into all queues when memory is short, and the next thread of the number takes the block out',
  'what has arrived is read before what was sent':
    'only the dead thread itself could send more, and a block that left the queue before has another owner, which the claim compares',
  'what a thread stores in its queue is looked at in another order': 'batches have no order among themselves',
}
