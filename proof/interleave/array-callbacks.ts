// Methods of arrays whose callbacks may stop in the middle, as those of the language otherwise.

type Run = Generator<unknown, unknown>
type Callback = (...args: unknown[]) => unknown
type List = ArrayLike<unknown>

/** `run` runs what a callback returns if that is a generator of ours. */
export function arrayMethods(run: (value: unknown) => Run) {
  function* each(list: List, callback: Callback, on: (value: unknown, result: unknown, index: number) => boolean): Run {
    for (let index = 0; index < list.length; index++) {
      const value = list[index]
      if (on(value, yield* run(callback(value, index, list)), index)) return index
    }
    return -1
  }
  function* map(list: List, callback: Callback): Run {
    const results: unknown[] = []
    yield* each(list, callback, (_, result) => results.push(result) === 0)
    return results
  }
  return {
    map,
    *from(list: Iterable<unknown> | List, callback: Callback): Run {
      return yield* map(Array.from(list), callback)
    },
    *flatMap(list: List, callback: Callback): Run {
      return ((yield* map(list, callback)) as unknown[]).flat()
    },
    *filter(list: List, callback: Callback): Run {
      const results: unknown[] = []
      yield* each(list, callback, (value, result) => Boolean(result) && results.push(value) === 0)
      return results
    },
    *forEach(list: List, callback: Callback): Run {
      yield* each(list, callback, () => false)
      return undefined
    },
    *some(list: List, callback: Callback): Run {
      return (yield* each(list, callback, (_, result) => Boolean(result))) !== -1
    },
    *every(list: List, callback: Callback): Run {
      return (yield* each(list, callback, (_, result) => !result)) === -1
    },
    *findIndex(list: List, callback: Callback): Run {
      return yield* each(list, callback, (_, result) => Boolean(result))
    },
    *find(list: List, callback: Callback): Run {
      const index = (yield* each(list, callback, (_, result) => Boolean(result))) as number
      return index === -1 ? undefined : list[index]
    },
    *reduce(list: List, callback: Callback, first: unknown): Run {
      let sum = first
      for (let index = 0; index < list.length; index++) sum = yield* run(callback(sum, list[index], index, list))
      return sum
    },
  }
}
