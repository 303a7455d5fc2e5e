// The long form of `allocate`: a size as text, and options. Pools look for it off their fast path, so that the short
// form costs nothing more.

import { WrongTypeError } from '../base/argument-errors.js'
import { type ByteSize, bytesOf } from '../base/byte-size.js'
import { checkOptionNames, isPlain } from '../base/option-names.js'
import { UNIT_BYTES } from '../heap/size-classes.js'
import { checkIsStream, type Stream } from '../order/stream.js'
import { checkMaxWaiting, type LineOptions, signalOf } from '../order/wait-options.js'
import { checkLabel, type LabelStore } from './labels.js'

/** Where memory is wanted, and under which name; every option may be left out. */
export interface AllocateOptions {
  /** the work submitted to this stream may use the memory (the pool's default stream) */
  readonly stream?: Stream | undefined
  /** a power of two of at most 2 MiB (256) */
  readonly alignment?: ByteSize | undefined
  /** the buffer's label, as by `buffer.label` (none) */
  readonly label?: string | undefined
}

const OPTIONS: readonly string[] = ['stream', 'alignment', 'label']

interface LongFormPool<B> {
  /** the memory that a share is of */
  readonly context: { readonly totalBytes: number }
  readonly labels?: LabelStore
  allocate(bytes: number, stream: Stream | undefined, alignment: number | undefined): B | null
  tryAllocate(bytes: number, stream: Stream | undefined, alignment: number | undefined): B | null
}

/** Whether the arguments of `allocate` have the long form. Objects of classes are no options. */
export function isLongForm(bytes: unknown, place: unknown): boolean {
  return typeof bytes === 'string' || isOptions(place)
}

/** Whether `place` are options, and not a stream. */
export function isOptions(place: unknown): place is AllocateOptions {
  return isPlain(place)
}

/**
 * Serves the long form by the short one. All arguments are checked before there is memory. Returns null when memory
 * runs out and `mayFail` is set.
 */
export function allocateLong<B extends { label: string; free(): void }>(
  pool: LongFormPool<B>,
  size: ByteSize,
  place: Stream | AllocateOptions | undefined,
  aligned: number | undefined,
  mayFail: boolean,
): B | null {
  const bytes = bytesOf(size, 'bytes', pool.context)
  const { stream, alignment, label = '' } = optionsOf(place, aligned)
  const alignBytes = alignment === undefined ? undefined : bytesOf(alignment, 'alignment', null)
  checkLabel(label, pool.labels)
  const buffer = mayFail ? pool.tryAllocate(bytes, stream, alignBytes) : pool.allocate(bytes, stream, alignBytes)
  if (buffer !== null && label !== '') name(buffer, label)
  return buffer
}

/** A wrapper's buffer may be of a pool that refuses a long label. */
function name(buffer: { label: string; free(): void }, label: string): void {
  try {
    buffer.label = label
  } catch (error) {
    buffer.free()
    throw error
  }
}

function optionsOf(place: Stream | AllocateOptions | undefined, alignment: number | undefined): AllocateOptions {
  if (!isOptions(place)) return { stream: place, alignment }
  checkOptionNames('allocate', place, OPTIONS)
  if (alignment !== undefined && alignment !== UNIT_BYTES) {
    throw new WrongTypeError('allocate: alignment stands beside options; pass it as one of them')
  }
  if (place.stream !== undefined) checkIsStream('allocate', place.stream)
  return place
}

interface WaitingPool<B> {
  tryAllocate(bytes: ByteSize, options: AllocateOptions): B | null
  whenAvailable(bytes: ByteSize, options: LineOptions): Promise<void>
}

/** Called as `pool.allocateSoon(bytes, options)`. */
export async function allocateSoon<B>(
  pool: WaitingPool<B>,
  bytes: ByteSize,
  options: AllocateOptions & LineOptions,
): Promise<B> {
  const signal = signalOf('allocateSoon', options, [...OPTIONS, 'maxWaiting'])
  const { maxWaiting = Infinity, stream, alignment, label = '' } = options
  checkMaxWaiting('allocateSoon', maxWaiting)
  if (stream !== undefined) checkIsStream('allocateSoon', stream)
  if (alignment !== undefined) bytesOf(alignment, 'alignment', null)
  checkLabel(label) // all here, since a full wrapper does not look at them
  const place = { stream, alignment, label }
  signal?.throwIfAborted()
  for (;;) {
    const buffer = pool.tryAllocate(bytes, place)
    if (buffer !== null) return buffer
    await pool.whenAvailable(bytes, { signal, maxWaiting })
  }
}
