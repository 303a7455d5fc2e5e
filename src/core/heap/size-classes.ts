// Sizes are counted in units of 256 bytes and grouped in classes: sixteen to an octave, so that sizes within one
// class differ by less than a sixteenth. Below sixteen units every size is a class of its own. (The grouping is that
// of TLSF: M. Masmano et al., "TLSF: a New Dynamic Memory Allocator for Real-Time Systems", 2004.)

export const UNIT_BYTES = 256 // the alignment of the driver's own allocations
export const MAX_UNITS = 2 ** 31 - 1 // with 256-byte units: 512 GiB of addresses in a range
const CLASSES_PER_OCTAVE = 16
const LINEAR_OCTAVES = 4 // sizes below 2^4 units are classes of their own
export const CLASS_GROUPS = 31 - LINEAR_OCTAVES + 1 // 28: the linear group, then one for each octave to 2^31
export const CLASSES = CLASS_GROUPS * CLASSES_PER_OCTAVE // 448

/** The class that holds blocks of `units` (1 to MAX_UNITS). */
export function classOf(units: number): number {
  // The number of low bits that a class ignores: none below 2^5, one more for each octave. Branch-free, since sizes
  // vary.
  const shift = 27 - Math.clz32(units | CLASSES_PER_OCTAVE)
  return shift * CLASSES_PER_OCTAVE + (units >>> shift)
}

/** The least number of units, from `units` on, at which a class begins. */
export function roundUpToClass(units: number): number {
  const shift = 27 - Math.clz32(units | CLASSES_PER_OCTAVE)
  return (((units - 1) >> shift) + 1) << shift
}

/** The least number of units in a block of this class. */
export function classFloorUnits(sizeClass: number): number {
  if (sizeClass < CLASSES_PER_OCTAVE) return sizeClass
  const octave = (sizeClass >>> 4) + 3
  return (CLASSES_PER_OCTAVE + (sizeClass & (CLASSES_PER_OCTAVE - 1))) * 2 ** (octave - LINEAR_OCTAVES)
}

/** The least power of two from `units` on. */
export function powerOfTwoUnits(units: number): number {
  return units <= 1 ? 1 : 2 ** (32 - Math.clz32(units - 1))
}
