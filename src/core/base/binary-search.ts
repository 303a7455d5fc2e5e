/**
 * The least index that passes `test`, which all greater indexes below `count` must pass as well. Without such an index
 * it is `count`.
 */
export function firstIndex(count: number, test: (index: number) => boolean): number {
  let low = 0
  let high = count
  while (low < high) {
    const middle = (low + high) >>> 1
    if (test(middle)) high = middle
    else low = middle + 1
  }
  return low
}
