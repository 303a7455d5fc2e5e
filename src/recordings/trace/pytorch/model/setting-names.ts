// All settings of PYTORCH_CUDA_ALLOC_CONF by their names, and whether the models take them. They are those of
// c10/core/AllocatorConfig and c10/cuda/CUDAAllocatorConfig of PyTorch's main branch in August 2026, on the way to
// version 2.15. Of `pinned_max_cached_size_mb` and `pinned_max_round_threshold_mb` only pull requests 171662 and 192722
// were read.

import { backend, boolean, divisions, gibibytes, large, megabytes, share } from './setting-values.js'

const RESERVE = 'expandable_segments_reserve'

/** Reads a value. `before` has the divisions of settings to its left. Throws RangeError with the name. */
type Reader = (value: string, name: string, before: { roundupPower2Divisions?: readonly number[] }) => object

/** Those that the models take, as fields of `PytorchSettings`. */
export const READERS = {
  backend: (value, name) => ({ backend: backend(value, name) }),
  expandable_segments: (value, name) => ({ expandableSegments: boolean(value, name) }),
  expandable_segments_reserve: (value, name) => ({ expandableReserveBytes: gibibytes(value, name) }),
  max_split_size_mb: (value, name) => ({ maxSplitBytes: megabytes(value, name) }),
  max_non_split_rounding_mb: (value, name) => ({ maxNonSplitRoundingBytes: megabytes(value, name) }),
  large_segment_size_mb: (value, name) => ({ largeSegmentBytes: large(value, name) }),
  garbage_collection_threshold: (value, name) => ({ garbageCollectionThreshold: share(value, name) }),
  roundup_power2_divisions: (value, name, before) => ({
    roundupPower2Divisions: divisions(value, name, before.roundupPower2Divisions),
  }),
} satisfies Readonly<Record<string, Reader>>

/** Whether the models take a setting with this value. */
export function isTaken(name: string, value: string | null): name is keyof typeof READERS {
  return Object.hasOwn(READERS, name) && leavingOf(name, value) === undefined
}

/** A setting that no model takes. */
interface Leaving {
  /** a limit, which is replayed as a capacity; no effect on a GPU's memory; or an effect that replays leave out */
  readonly kind: 'limit' | 'none' | 'left out'
  /** for an effect that replays leave out: what it depends on, and no recording has */
  readonly lacks?: string
  /** whether a value changes nothing */
  readonly isDefault?: (value: string) => boolean
}

const WITHOUT_EFFECT = [
  'pinned_free_catch_all',
  'pinned_max_cached_size_mb',
  'pinned_max_round_threshold_mb',
  'pinned_num_register_threads',
  'pinned_reserve_segment_size_mb',
  'pinned_use_background_threads',
  'pinned_use_cuda_host_register',
  'pinned_use_hip_host_register',
  'release_lock_on_cudamalloc',
  'release_lock_on_hipmalloc',
  // It decides when a freed block is free again within a capture, and a recording says when it was.
  'graph_capture_record_stream_reuse',
]

const DEVICE_SIZE = 'the size of the device'

/** Those that no model takes, `expandable_segments_reserve` if it is a share. */
const LEAVINGS: ReadonlyMap<string, Leaving> = new Map<string, Leaving>([
  ...WITHOUT_EFFECT.map((name): [string, Leaving] => [name, { kind: 'none' }]),
  ['per_process_memory_fraction', { kind: 'limit', isDefault: value => Number(value) === 1 }],
  // A request above `per_process_memory_fraction` of the device fails without a retry. A limit that the program had
  // from its start is compared first, and a request above it is tried again.
  ['throw_on_cudamalloc_oom', { kind: 'left out', lacks: DEVICE_SIZE, isDefault: value => value === 'False' }],
  [RESERVE, { kind: 'left out', lacks: DEVICE_SIZE }],
  // A program gives streams their classes while it runs.
  [`${RESERVE}_by_class`, { kind: 'left out', lacks: 'the classes of streams', isDefault: value => value === '[]' }],
])

/** How the models leave out a setting; undefined for one that they take, or that is not known. */
export function leavingOf(name: string, value: string | null): Leaving | undefined {
  const isShare = Number(value) > 0
  return name === RESERVE && !isShare ? undefined : LEAVINGS.get(name)
}
