// Methods replaced for a while, private ones among them: how a test breaks a rule of which the product knows nothing.

/** Replaces a method, and mends it when the returned function is called, after which `then` is. */
export function replace<T extends object, K extends keyof T>(
  prototype: T,
  name: K,
  make: (original: T[K]) => T[K],
  then = () => {},
): () => void {
  const original = prototype[name]
  prototype[name] = make(original)
  return () => {
    prototype[name] = original
    then()
  }
}

type Method = (this: never, ...args: never[]) => unknown

export function replacePrivate(prototype: object, name: string, make: (original: Method) => Method): () => void {
  return replace(prototype as Record<string, Method>, name, make)
}
