// console.log shows all fields of an object. Public objects hold the whole state of a pool, so they show one line
// instead. Their classes also have a mark, which tells the classes of two copies of this package apart.

/** The method that Node's `console.log` calls, and that of Deno and Bun. */
const INSPECT = Symbol.for('nodejs.util.inspect.custom')

/** The mark of a public class; two versions or formats of this package in a process are two copies of it. */
const COPY = Symbol.for('cuda-mempool.copy')
const thisCopy = Symbol('this copy')

/** Whether an object is of a public class, but of another copy of this package. */
export function isOfAnotherCopy(value: object): boolean {
  const { [COPY]: copy = thisCopy } = value as { readonly [COPY]?: symbol }
  return copy !== thisCopy
}

/** Makes console.log show objects of these classes, and of classes derived from them, as their `toString()`. */
export function showAsText(...classes: readonly { readonly prototype: object }[]): void {
  for (const { prototype } of classes) {
    Object.defineProperty(prototype, COPY, { value: thisCopy })
    Object.defineProperty(prototype, INSPECT, {
      value(this: object): string {
        return String(this)
      },
    })
  }
}

/** An address or a handle, as messages show it. */
export function hex(address: number): string {
  return `0x${address.toString(16)}`
}

const MOST_LISTED = 8

/** `0, 1, 2`; of more than eight the first ones, and how many more there are. */
export function listed(items: readonly (string | number)[]): string {
  if (items.length <= MOST_LISTED) return items.join(', ')
  return `${items.slice(0, MOST_LISTED).join(', ')} and ${items.length - MOST_LISTED} more`
}
