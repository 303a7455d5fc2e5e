// The memory behind mapped addresses. One byte of memory may be mapped at several addresses, so the oracle judges
// memory by numbers of its own. Each handle of the driver gets numbers that are no address and are never used again.
// Memory that is not mapped has its address as its number.

/** Numbers from `start` to before `end`. */
export interface Interval {
  readonly start: number
  readonly end: number
}

/** One handle of the driver. */
interface Handle extends Interval {
  /** how many mappings it has; it outlives its release until the last one ends */
  mappings: number
  wasMapped: boolean
  isReleased: boolean
}

/** A handle at an address. */
export interface Mapping {
  readonly ptr: number
  readonly bytes: number
  readonly handle: Handle
  /** whether it is the first mapping of its handle */
  readonly isHome: boolean
}

/** Beyond all addresses. */
const FIRST_NUMBER = 2 ** 52

export class MappedMemory {
  private next = FIRST_NUMBER
  private readonly handles = new Map<number, Handle>()
  /** by the address of each granule that is mapped */
  private readonly mappingAt = new Map<number, Mapping>()

  constructor(private readonly granuleBytes: number) {}

  create(handle: number, bytes: number): void {
    this.handles.set(handle, {
      start: this.next,
      end: this.next + bytes,
      mappings: 0,
      wasMapped: false,
      isReleased: false,
    })
    this.next += bytes
  }

  /** Returns the memory that goes back to the device, or null while it is mapped. */
  release(handle: number): Interval | null {
    const released = this.handles.get(handle)!
    this.handles.delete(handle)
    released.isReleased = true
    return released.mappings === 0 ? released : null
  }

  map(ptr: number, bytes: number, handle: number): void {
    const mapped = this.handles.get(handle)!
    const mapping = { ptr, bytes, handle: mapped, isHome: !mapped.wasMapped }
    mapped.mappings++
    mapped.wasMapped = true
    for (let at = ptr; at < ptr + bytes; at += this.granuleBytes) this.mappingAt.set(at, mapping)
  }

  /** Returns the memory that goes back to the device, or null while it has a handle or another mapping. */
  unmap({ ptr, bytes, handle }: Mapping): Interval | null {
    for (let at = ptr; at < ptr + bytes; at += this.granuleBytes) this.mappingAt.delete(at)
    return --handle.mappings === 0 && handle.isReleased ? handle : null
  }

  /** The mappings under some addresses, in their order. */
  mappingsIn(start: number, end: number): Mapping[] {
    const mappings: Mapping[] = []
    for (let at = start; at < end; ) {
      const mapping = this.mappingAt.get(at - (at % this.granuleBytes))
      if (mapping === undefined) return mappings
      mappings.push(mapping)
      at = mapping.ptr + mapping.bytes
    }
    return mappings
  }

  /** The memory behind some addresses. */
  behind(start: number, end: number): Interval[] {
    const memory = this.mappedBehind(start, end)
    return memory.length === 0 ? [{ start, end }] : memory
  }

  /** The memory behind some addresses, up to the first that is not mapped. */
  mappedBehind(start: number, end: number): Interval[] {
    return this.mappingsIn(start, end).map(({ ptr, bytes, handle }) => ({
      start: handle.start + Math.max(start - ptr, 0),
      end: handle.start + Math.min(end - ptr, bytes),
    }))
  }
}

export function overlap(some: readonly Interval[], others: readonly Interval[]): boolean {
  return some.some(one => others.some(other => one.start < other.end && other.start < one.end))
}

/** What is left of `some` without `others`. */
export function without(some: readonly Interval[], others: readonly Interval[]): readonly Interval[] {
  return others.reduce<readonly Interval[]>(
    (left, other) =>
      left.flatMap(one => {
        const before = { start: one.start, end: Math.min(one.end, other.start) }
        const after = { start: Math.max(one.start, other.end), end: one.end }
        return [before, after].filter(({ start, end }) => start < end)
      }),
    some,
  )
}
