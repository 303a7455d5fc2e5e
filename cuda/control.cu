// The host's work on the memory of kernels, in stream order: initialise, reset, grow, sum up.

#include "cuda_mempool.cuh"

using namespace cuda_mempool;

extern "C" __global__ void bump_initialise(DevicePool *pool, u64 base, u64 limit, u64 reserved) {
  *pool = {base, limit, reserved};
}

// Everything taken is gone. The peak stays.
extern "C" __global__ void bump_reset(DevicePool *pool) {
  const u64 taken = min(pool->offset, pool->limit);
  if (taken > pool->peak) pool->peak = taken;
  pool->failures = 0;
  pool->offset = 0;
}

extern "C" __global__ void bump_grow(DevicePool *pool, u64 limit) { atomicMax(&pool->limit, limit); }

// All superblocks idle and all counters zero, by any number of threads; of the superblocks that were ever in use, the
// first `used`, the bitmaps too.
static __device__ void clearHeap(DeviceHeap *heap, u64 base, u32 reserved, u32 limit, u32 used) {
  const u32 thread = blockIdx.x * blockDim.x + threadIdx.x;
  const u32 threads = gridDim.x * blockDim.x;
  for (u32 at = thread; at < STRIPES; at += threads) heap->stripes[at] = {};
  for (u32 at = thread; at <= CLASSES; at += threads) heap->counts[at] = {at == CLASSES ? static_cast<i32>((limit + 63) >> 6) : 0, 0};
  for (u32 at = thread; at < CLASSES * SLOTS; at += threads) (&heap->slots[0][0])[at] = ~0u;
  Record *const records = reinterpret_cast<Record *>(heap + 1);
  for (u32 at = thread; at < recordsFor(reserved); at += threads) records[at] = {BIAS, {0, 0}};
  u64 *const sets = reinterpret_cast<u64 *>(records + recordsFor(reserved));
  const u32 wordCount = (reserved + 63) >> 6;
  const u32 setWords = wordCount + ((wordCount + 63) >> 6);
  for (u64 at = thread; at < static_cast<u64>(CLASSES + 1) * setWords; at += threads) {
    const bool idle = at >= static_cast<u64>(CLASSES) * setWords;
    const u32 within = static_cast<u32>(at % setWords);
    // A bit of the summary stands for 64 superblocks.
    const u32 present = within < wordCount ? limit : (limit + 63) >> 6;
    const u32 first = 64 * (within < wordCount ? within : within - wordCount);
    const u32 bits = !idle || present <= first ? 0 : present - first;
    sets[at] = bits >= 64 ? ~0ull : (1ull << bits) - 1;
  }
  const u64 bitmapQuads = static_cast<u64>(used) * (BITMAP_BYTES / 16);
  uint4 *const bitmaps = reinterpret_cast<uint4 *>(base) - bitmapQuads;
  for (u64 at = thread; at < bitmapQuads; at += threads) bitmaps[at] = {0, 0, 0, 0};
  if (thread == 0) {
    heap->peak = heap->slotted = 0;
    heap->idleCount = static_cast<i32>(limit);
    heap->doubleFrees = heap->invalidFrees = 0;
  }
}

extern "C" __global__ void heap_initialise(DeviceHeap *heap, u64 base, u32 reserved, u32 limit, u32 slotMask) {
  clearHeap(heap, base, reserved, limit, reserved);
  if (blockIdx.x * blockDim.x + threadIdx.x != 0) return;
  heap->base = base;
  heap->reserved = reserved;
  heap->limit = heap->claimed = limit;
  heap->slotMask = slotMask;
  heap->highest = 0;
}

// Every block is gone. `highest` stays, since other threads still read it here.
extern "C" __global__ void heap_reset(DeviceHeap *heap) {
  clearHeap(heap, heap->base, heap->reserved, heap->limit, heap->highest);
}

// Superblocks up to `limit`, by one block of threads, while others allocate, or grow it too.
extern "C" __global__ void heap_grow(DeviceHeap *heap, u32 limit) {
  __shared__ u32 before;
  if (threadIdx.x == 0) before = limit > heap->reserved ? limit : atomicMax(&heap->claimed, limit);
  __syncthreads();
  if (limit <= before) return;
  for (u32 word = (before >> 6) + threadIdx.x; word <= (limit - 1) >> 6; word += blockDim.x) {
    const u32 first = word * 64;
    const u32 from = before > first ? before - first : 0;
    const u32 bits = limit - first;
    heap->idle().insertBits(word, (bits >= 64 ? ~0ull : (1ull << bits) - 1) & ~0ull << from);
  }
  __threadfence();
  __syncthreads();
  if (threadIdx.x != 0) return;
  // The count first: by the limit less the count the peak is known, which must not seem higher than it was.
  atomicAdd(&heap->idleCount, static_cast<i32>(limit - before));
  __threadfence();
  atomicMax(&heap->limit, limit);
}
