// Sizes are counted in units of 256 bytes and grouped in classes: sixteen to an octave, so that sizes within one
// class differ by less than a sixteenth. Below sixteen units every size is a class of its own. (The grouping is that
// of TLSF: M. Masmano et al., "TLSF: a New Dynamic Memory Allocator for Real-Time Systems", 2004.)

/** The sums of `classOf`, for hot code that repeats them; V8 has the numbers in place. */
export const enum ClassSum {
  /** classes of an octave */
  inOctave = 16,
  /** from an octave to its first class */
  octaveShift = 4,
  /** the low bits that a class ignores are this less the leading zeros: none below 2^5, one more for each octave */
  ignoredAndZeros = 27,
}

export const UNIT_BYTES = 256 // the alignment of the driver's own allocations
export const MAX_UNITS = 2 ** 31 - 1 // with 256-byte units: 512 GiB of addresses in a range
const LINEAR_OCTAVES = 4 // sizes below 2^4 units are classes of their own
export const CLASS_GROUPS = 31 - LINEAR_OCTAVES + 1 // 28: the linear group, then one for each octave to 2^31
export const CLASSES = CLASS_GROUPS * ClassSum.inOctave // 448

/** The class that holds blocks of `units` (1 to MAX_UNITS). */
export function classOf(units: number): number {
  const ignored = ClassSum.ignoredAndZeros - Math.clz32(units | ClassSum.inOctave) // no branch, since sizes vary
  return (ignored << ClassSum.octaveShift) + (units >>> ignored)
}

/** The least number of units, from `units` on, at which a class begins. */
export function roundUpToClass(units: number): number {
  const ignored = ClassSum.ignoredAndZeros - Math.clz32(units | ClassSum.inOctave)
  return (((units - 1) >> ignored) + 1) << ignored
}

/** The least number of units in a block of this class. */
export function classFloorUnits(sizeClass: number): number {
  if (sizeClass < ClassSum.inOctave) return sizeClass
  const ignored = (sizeClass >>> ClassSum.octaveShift) - 1
  return (ClassSum.inOctave + (sizeClass & (ClassSum.inOctave - 1))) * 2 ** ignored
}

/** The least power of two from `units` on. */
export function powerOfTwoUnits(units: number): number {
  return units <= 1 ? 1 : 2 ** (32 - Math.clz32(units - 1))
}
