// How many random programs a test runs: one rule for programs whose length POOL_FUZZ_STEPS says.

/** The programs of a longer run have at most so many times the steps of a usual one, all together. */
const MOST_STEPS = 2
const SEEDS = process.env['POOL_FUZZ_SEEDS']

/**
 * The seeds of a test from `first` on, `apart` from each other: `usual` of them, or POOL_FUZZ_SEEDS. Programs that are
 * `timesLonger` than usual run from fewer seeds, but from one at least.
 */
export function seedsFrom(first: number, usual: number, timesLonger: number, apart = 1): number[] {
  const affordable = Math.max(1, Math.floor((MOST_STEPS * usual) / timesLonger))
  const count = SEEDS === undefined ? Math.min(usual, affordable) : Number(SEEDS)
  return Array.from({ length: count }, (_, index) => first + index * apart)
}
