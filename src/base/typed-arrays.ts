// Types of typed arrays. TypeScript 5.7 made typed arrays generic; the names of the types here exist before, too.

/** Bytes in an ArrayBuffer: `Uint8Array<ArrayBuffer>` from TypeScript 5.7 on, and before `Uint8Array`. */
export type Bytes = ReturnType<Uint8ArrayConstructor['of']>

/** `Float16Array`, if the program's TypeScript and its `lib` know it (TypeScript 5.8, ESNext). */
export type Float16 = typeof globalThis extends { Float16Array: { readonly prototype: infer A } } ? A : never
