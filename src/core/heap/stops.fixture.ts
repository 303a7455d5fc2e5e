/** Runs `work`; returns a copy of `buffer` for each store that it makes by an array of one of these objects. */
export function stopsOf(buffer: ArrayBuffer, objects: readonly object[], work: () => void): ArrayBuffer[] {
  const stops: ArrayBuffer[] = []
  const watch = <A extends object>(array: A): A =>
    new Proxy(array, {
      get: (target, name) => {
        const value = Reflect.get(target, name)
        if (typeof value !== 'function') return value
        return (...args: unknown[]) => {
          const result = value.apply(target, args)
          stops.push(buffer.slice(0))
          return result
        }
      },
      set: (target, name, value) => {
        Reflect.set(target, name, value)
        stops.push(buffer.slice(0))
        return true
      },
    })
  for (const object of objects as unknown as Record<string, unknown>[]) {
    for (const [name, value] of Object.entries(object)) if (ArrayBuffer.isView(value)) object[name] = watch(value)
  }
  work()
  return stops
}
