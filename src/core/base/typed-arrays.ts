// Types of typed arrays. TypeScript 5.7 made typed arrays generic; the names of the types here exist before, too.

import { WrongTypeError } from './argument-errors.js'
import { describe } from './bytes.js'

/** Bytes in an ArrayBuffer: `Uint8Array<ArrayBuffer>` from TypeScript 5.7 on, and before `Uint8Array`. */
export type Bytes = ReturnType<Uint8ArrayConstructor['of']>

const [bytesOfArray, bytesOfDataView] = [Object.getPrototypeOf(Uint8Array.prototype), DataView.prototype].map(
  prototype => Object.getOwnPropertyDescriptor(prototype, 'byteLength')!.get!,
)
const nameOf = Object.getOwnPropertyDescriptor(Object.getPrototypeOf(Uint8Array.prototype), Symbol.toStringTag)!.get!

/**
 * The name of a typed array's class, such as 'Uint8Array'; undefined for anything else. Works for arrays of another
 * realm, too: in a context of `node:vm`, as in Jest's tests, `instanceof` knows none of this realm.
 */
export function typedArrayName(value: unknown): string | undefined {
  return nameOf.call(value)
}

/**
 * Throws TypeError, in the name of `call`, for a view of a class that says something else than the bytes it has: the
 * driver would read beyond them.
 */
export function checkBytes(call: string, source: ArrayBufferView): void {
  const bytes = (typedArrayName(source) === undefined ? bytesOfDataView : bytesOfArray).call(source)
  if (source.byteLength === bytes) return
  throw new WrongTypeError(`${call}: source has ${bytes} bytes, and its byteLength says ${describe(source.byteLength)}`)
}

/** Whether a value is a Uint8Array of any realm; a Buffer is one. */
export function isUint8Array(value: unknown): value is Uint8Array {
  return typedArrayName(value) === 'Uint8Array'
}

/** `Float16Array`, if the program's TypeScript and its `lib` know it (TypeScript 5.8, ESNext). */
export type Float16 = typeof globalThis extends { Float16Array: { readonly prototype: infer A } } ? A : never
