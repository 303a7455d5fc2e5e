// The settings that are tried by default.

/** Settings without a limit, as PYTORCH_ALLOC_CONF has them. */
export const CANDIDATES: readonly string[] = [
  '',
  'expandable_segments:True',
  'roundup_power2_divisions:4',
  'roundup_power2_divisions:8',
  'roundup_power2_divisions:16',
  'max_split_size_mb:64',
  'max_split_size_mb:128',
  'max_split_size_mb:256',
  'max_split_size_mb:512',
  'max_split_size_mb:1024',
  'max_split_size_mb:256,max_non_split_rounding_mb:256',
  'expandable_segments:True,roundup_power2_divisions:8',
  'max_split_size_mb:512,roundup_power2_divisions:8',
]

/** Settings that need a limit. */
export const LIMITED_CANDIDATES: readonly string[] = [
  'garbage_collection_threshold:0.6',
  'garbage_collection_threshold:0.8',
  'max_split_size_mb:256,garbage_collection_threshold:0.8',
]
