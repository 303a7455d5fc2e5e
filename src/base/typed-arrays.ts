// Types of typed arrays over a buffer of their own. TypeScript 5.7 made typed arrays generic; the names of the types
// here exist before, too.

/** Bytes in an ArrayBuffer: `Uint8Array<ArrayBuffer>` from TypeScript 5.7 on, and before `Uint8Array`. */
export type Bytes = ArrayOf<Uint8ArrayConstructor>

/** The typed array over an ArrayBuffer that a constructor such as `Float32ArrayConstructor` makes. */
export type ArrayOf<C extends { of(...elements: never[]): unknown }> = ReturnType<C['of']>

/** `Float16Array`, if the program's TypeScript and its `lib` know it (TypeScript 5.8, ESNext). */
export type Float16 = typeof globalThis extends { Float16Array: { of(...elements: number[]): infer A } } ? A : never
