// Numbers of call paths. A key of a path in letters has the names of all its frames: a recording of a megabyte can have
// stacks that repeat a long name for gigabytes. Numbers are found frame by frame instead.

/** More paths and names than any recording that can be read has; both fit into one exact number. */
const MOST_NAMES = 2 ** 26

/** Equal paths have equal numbers, whatever recording they come from. */
export class PathNumbers<Call extends object> {
  private readonly numbers = new Map<Call, number>()
  private readonly names = new Map<string, number>()
  /** by the number of a path and of a name: the number of the path that goes on there */
  private readonly paths = new Map<number, number>()

  /** Calls with equal names are equal. */
  constructor(private readonly nameOf: (call: Call) => string) {}

  /** The number of a path, its innermost call first; 0 for the empty one. */
  of(calls: readonly Call[]): number {
    let path = 0
    for (let i = calls.length - 1; i >= 0; i--) path = numberIn(this.paths, path * MOST_NAMES + this.numberOf(calls[i]))
    return path
  }

  private numberOf(call: Call): number {
    let number = this.numbers.get(call)
    if (number === undefined) {
      number = numberIn(this.names, this.nameOf(call))
      this.numbers.set(call, number)
    }
    return number
  }
}

/** The number of a key, from 1 in the order of their first use. */
function numberIn<Key>(numbers: Map<Key, number>, key: Key): number {
  let number = numbers.get(key)
  if (number === undefined) {
    number = numbers.size + 1
    numbers.set(key, number)
  }
  return number
}
