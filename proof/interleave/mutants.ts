// Bugs that are planted one at a time, by replacing a place of one file of the project, and which a scenario must notice.

export interface Mutant {
  readonly name: string
  readonly file: string
  /** found once in the file */
  readonly find: string
  readonly replace: string
  /** what notices it */
  readonly scenario: string
  /** the kind of processor where it shows, x64 if not given */
  readonly arch?: 'arm64'
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
  }))
}

const LOCK = 'src/base/robust-lock.ts'
const ROSTER = 'src/base/roster.ts'
const MAILBOX = 'src/base/mailbox.ts'
const BUMP = 'src/heap/shared-bump.ts'
const SLOTS = 'src/order/stream-slots.ts'
const INBOXES = 'src/pool/inboxes.ts'
const POOL = 'src/pool/shared-pool.ts'

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
  ...inFile(LOCK, 'a lock is taken over from the dead', [
    ['a dead holder is waited for', '|| roster.isDead(owner)', ''],
    ['a lock that was taken over is said to be whole', '=== seen) return owner', '=== seen) return 0'],
    [
      'a lock is taken over from the living',
      "=== 'timed-out') roster.look(owner)",
      "=== 'timed-out') roster.bury(owner)",
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
  ...inFile(MAILBOX, 'every question has its own answer', [
    [
      'asked is said before the question is there',
      'this.write(place, question)\n    Atomics.store(words, place, Status.asked)',
      'Atomics.store(words, place, Status.asked)\n    this.write(place, question)',
    ],
    [
      'answered is said before the answer is there',
      'this.write(place, this.tried(work, this.read(place), asker))\n      Atomics.store(words, place, Status.answered)',
      'const answer = this.tried(work, this.read(place), asker)\n      Atomics.store(words, place, Status.answered)\n      this.write(place, answer)',
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
      'return Atomics.load(words, Word.epoch) === epoch ? top : Refusal.ended',
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
    ['a dead resetter is waited for', 'if (roster.look(owner)) {', 'if (owner < 0) {'],
    [
      'what a dead resetter left is not undone',
      'if (epoch === Atomics.load(words, Word.closedIn)) this.flip()',
      'if (epoch === Atomics.load(words, Word.closedIn)) return',
    ],
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
  ]),
  ...inFile(SLOTS, 'two threads claim two slots', [
    ['the lock of the slots is not taken', 'this.lock?.acquire()', 'if (this.lock === null) return'],
  ]),
  ...inFile(POOL, 'a buffer is adopted by one thread', [
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
  ...inFile(INBOXES, 'every block that is sent arrives once', [
    [
      'two threads begin one parcel',
      'if (Atomics.compareExchange(words, parcel, 0, this.thread) !== 0) continue',
      'if (Atomics.load(words, parcel) !== 0) continue\n      Atomics.store(words, parcel, this.thread)',
    ],
    [
      'a parcel is complete before its last entry is there',
      'publish(words, entry, record)\n    next[thread] = entry + 1\n    if (((entry + 1) & (PARCEL_WORDS - 1)) === 0) publish(words, entry + 1 - PARCEL_WORDS, this.thread | COMPLETE)\n',
      'if (((entry + 1) & (PARCEL_WORDS - 1)) === 0) publish(words, entry + 1 - PARCEL_WORDS, this.thread | COMPLETE)\n    publish(words, entry, record)\n    next[thread] = entry + 1\n',
    ],
  ]),
]
