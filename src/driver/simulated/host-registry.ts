interface Range {
  readonly start: number
  readonly end: number
}

/** Host memory that was registered (pinned): the device reads and writes it when an operation runs, not at the call. */
export class HostRegistry {
  private readonly ranges = new Map<ArrayBufferLike, Range[]>()

  /** False when part of the memory is registered already. */
  register(host: ArrayBufferView): boolean {
    const { start, end } = rangeOf(host)
    const ranges = this.ranges.get(host.buffer) ?? []
    if (ranges.some(range => start < range.end && range.start < end)) return false
    this.ranges.set(host.buffer, [...ranges, { start, end }])
    return true
  }

  /** False when nothing was registered from the beginning of `host` on; its length does not matter, as in CUDA. */
  unregister(host: ArrayBufferView): boolean {
    const ranges = this.ranges.get(host.buffer) ?? []
    const rest = ranges.filter(range => range.start !== host.byteOffset)
    if (rest.length === 0) this.ranges.delete(host.buffer)
    else this.ranges.set(host.buffer, rest)
    return rest.length < ranges.length
  }

  /** Whether all of the memory is registered. */
  has(host: ArrayBufferView): boolean {
    const { start, end } = rangeOf(host)
    return this.ranges.get(host.buffer)?.some(range => range.start <= start && end <= range.end) ?? false
  }
}

function rangeOf(host: ArrayBufferView): Range {
  return { start: host.byteOffset, end: host.byteOffset + host.byteLength }
}
