// Replaces methods for a while, private ones too: so tests break a rule without code in the product.

/** Replaces a method. The returned function restores it, and then calls `then`. */
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

/** Replaces a method in the calls that another method makes until it returns. */
export function replaceWithin(
  outer: object,
  outerName: string,
  prototype: object,
  name: string,
  make: (original: Method) => Method,
): () => void {
  let isWithin = false
  const restore = replacePrivate(prototype, name, original => {
    const broken = make(original)
    return function (this: never, ...args: never[]): unknown {
      return Reflect.apply(isWithin ? broken : original, this, args)
    }
  })
  const restoreOuter = replacePrivate(
    outer,
    outerName,
    original =>
      function (this: never, ...args: never[]): unknown {
        isWithin = true
        try {
          return Reflect.apply(original, this, args)
        } finally {
          isWithin = false
        }
      },
  )
  return () => {
    restoreOuter()
    restore()
  }
}
