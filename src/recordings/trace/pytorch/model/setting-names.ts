// All settings of PYTORCH_CUDA_ALLOC_CONF by their names, and whether the models take them. They are those of
// c10/core/AllocatorConfig and c10/cuda/CUDAAllocatorConfig of PyTorch's main branch in August 2026. Of
// `pinned_max_cached_size_mb` and `pinned_max_round_threshold_mb` only pull requests 171662 and 192722 were read.

import { backend, boolean, divisions, large, megabytes, share } from './setting-values.js'

/** Reads a value. `before` has the divisions of settings to its left. Throws RangeError with the name. */
type Reader = (value: string, name: string, before: { roundupPower2Divisions?: readonly number[] }) => object

/** Those that the models take, as fields of `PytorchSettings`. */
export const READERS = {
  backend: (value, name) => ({ backend: backend(value, name) }),
  expandable_segments: (value, name) => ({ expandableSegments: boolean(value, name) }),
  max_split_size_mb: (value, name) => ({ maxSplitBytes: megabytes(value, name) }),
  max_non_split_rounding_mb: (value, name) => ({ maxNonSplitRoundingBytes: megabytes(value, name) }),
  large_segment_size_mb: (value, name) => ({ largeSegmentBytes: large(value, name) }),
  garbage_collection_threshold: (value, name) => ({ garbageCollectionThreshold: share(value, name) }),
  roundup_power2_divisions: (value, name, before) => ({
    roundupPower2Divisions: divisions(value, name, before.roundupPower2Divisions),
  }),
} satisfies Readonly<Record<string, Reader>>

/** Whether the models take a setting. */
export function isTaken(name: string): name is keyof typeof READERS {
  return Object.hasOwn(READERS, name)
}

/** A setting that no model takes. */
interface Leaving {
  /** a limit, which is replayed as a capacity; no effect on a GPU's memory; or an effect that replays leave out */
  readonly kind: 'limit' | 'none' | 'left out'
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

/** Those that no model takes. */
export const LEAVINGS: ReadonlyMap<string, Leaving> = new Map<string, Leaving>([
  ...WITHOUT_EFFECT.map((name): [string, Leaving] => [name, { kind: 'none' }]),
  ['per_process_memory_fraction', { kind: 'limit', isDefault: value => Number(value) === 1 }],
  // A request above the program's limit fails, where the models give memory back and ask again.
  ['throw_on_cudamalloc_oom', { kind: 'left out', isDefault: value => value === 'False' }],
  // Segments have fewer addresses than those of the models.
  ['expandable_segments_reserve', { kind: 'left out' }],
  ['expandable_segments_reserve_by_class', { kind: 'left out', isDefault: value => value === '[]' }],
])
