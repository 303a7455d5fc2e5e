// console.log shows all fields of an object. Public objects hold the whole state of a pool, so they show one line
// instead.

/** The method that Node's `console.log` calls, and that of Deno and Bun. */
const INSPECT = Symbol.for('nodejs.util.inspect.custom')

/** Makes console.log show objects of these classes, and of classes derived from them, as their `toString()`. */
export function showAsText(...classes: readonly { readonly prototype: object }[]): void {
  for (const { prototype } of classes) {
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
