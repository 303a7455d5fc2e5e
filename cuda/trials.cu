// Kernels that try the allocators: take, stamp, verify, free; churn; a detector of memory handed out twice. They count
// errors in *faults.

#include "cuda_mempool.cuh"

using namespace cuda_mempool;

static __device__ u32 thread() { return blockIdx.x * blockDim.x + threadIdx.x; }

static __device__ u32 hash(u32 value) {
  value = (value ^ value >> 16) * 0x7feb352du;
  value = (value ^ value >> 15) * 0x846ca68bu;
  return value ^ value >> 16;
}

// The size that a thread wants, from `least` to `most` bytes: evenly distributed in size if `shape` is 0, in its
// logarithm if it is 1.
static __device__ u32 wanted(u32 seed, u32 least, u32 most, u32 shape) {
  const u32 random = hash(seed);
  if (shape == 0) return least + random % (most - least + 1);
  const u32 octaves = 31 - __clz(most / least);
  const u32 floor = least << random % octaves;
  return floor + (random >> 8) % floor + 1;
}

#define TAKE(name, Allocator)                                                                                          \
  extern "C" __global__ void name(Allocator *from, void **blocks, u32 count, u32 least, u32 most, u32 shape, u32 seed) { \
    if (thread() < count) blocks[thread()] = from->allocate(wanted(thread() + seed, least, most, shape));              \
  }
TAKE(pool_take, DevicePool)
TAKE(arena_take, DeviceArena)
TAKE(heap_take, DeviceHeap)

// Lanes of a warp that use two of a kind at once.
#define TAKE_OF_TWO(name, Allocator)                                                                                   \
  extern "C" __global__ void name(Allocator *even, Allocator *odd, void **blocks, u32 count, u32 bytes) {              \
    if (thread() < count) blocks[thread()] = (thread() % 2 == 0 ? even : odd)->allocate(bytes);                        \
  }
TAKE_OF_TWO(arena_take_of_two, DeviceArena)
TAKE_OF_TWO(heap_take_of_two, DeviceHeap)

extern "C" __global__ void heap_free_of_two(DeviceHeap *even, DeviceHeap *odd, void **blocks, u32 count) {
  if (thread() < count) (thread() % 2 == 0 ? even : odd)->free(blocks[thread()]);
}

// The addition alone, as the base line of the tiers.
extern "C" __global__ void bare_take(u64 *offset, void **blocks, u32 count, u32 least, u32 most, u32 shape, u32 seed) {
  if (thread() < count) {
    blocks[thread()] = reinterpret_cast<void *>(atomicAdd(offset, static_cast<u64>(wanted(thread() + seed, least, most, shape))));
  }
}

// The same with a size that the compiler knows, which lets it add once for a whole warp.
extern "C" __global__ void bare_take_64(u64 *offset, void **blocks, u32 count) {
  if (thread() < count) blocks[thread()] = reinterpret_cast<void *>(atomicAdd(offset, 64ull));
}

extern "C" __global__ void bare_take_64_narrow(u32 *offset, u32 *blocks, u32 count) {
  if (thread() < count) blocks[thread()] = atomicAdd(offset, 64u);
}

extern "C" __global__ void arena_take_64(DeviceArena *arena, void **blocks, u32 count) {
  if (thread() < count) blocks[thread()] = arena->allocate(64);
}

extern "C" __global__ void cuda_take(void **blocks, u32 count, u32 least, u32 most, u32 shape, u32 seed) {
  if (thread() < count) blocks[thread()] = malloc(wanted(thread() + seed, least, most, shape));
}

extern "C" __global__ void cuda_free(void **blocks, u32 count) {
  if (thread() < count) free(blocks[thread()]);
}

// Thread i frees block i * stride mod count: 1 for its own, an odd number for anyone's where count is a power of two.
extern "C" __global__ void heap_free(DeviceHeap *heap, void **blocks, u32 count, u32 stride) {
  if (thread() < count) heap->free(blocks[static_cast<u64>(thread()) * stride % count]);
}

// Writes the thread's number into every word of its block.
extern "C" __global__ void stamp(void **blocks, u32 count, u32 least, u32 most, u32 shape, u32 seed) {
  if (thread() >= count || blocks[thread()] == nullptr) return;
  u32 *const words = static_cast<u32 *>(blocks[thread()]);
  for (u32 at = 0; at < wanted(thread() + seed, least, most, shape) / 4; at++) words[at] = thread();
}

extern "C" __global__ void verify(void **blocks, u32 count, u32 least, u32 most, u32 shape, u32 seed, u32 *faults) {
  if (thread() >= count || blocks[thread()] == nullptr) return;
  const u32 *const words = static_cast<const u32 *>(blocks[thread()]);
  u32 wrong = 0;
  for (u32 at = 0; at < wanted(thread() + seed, least, most, shape) / 4; at++) wrong += words[at] != thread();
  if (wrong != 0) atomicAdd(faults, wrong);
}

// Frees each block twice. The second time it may belong to another thread, or be part of another block. No thread
// uses its blocks.
extern "C" __global__ void free_twice(DeviceHeap *heap, u32 rounds, u32 least, u32 most, u32 shape, u32 seed) {
  void *before = nullptr;
  for (u32 round = 0; round < rounds; round++) {
    void *const block = heap->allocate(wanted(hash(thread() + seed) + round, least, most, shape));
    heap->free(before);
    heap->free(block);
    before = block;
  }
}

// Takes and frees in one kernel, `rounds` times, up to four blocks held at a time. `marks`, if not null, has a word
// for each 16 bytes of the heap's superblocks, all zero. A thread that takes a block must find its words zero, and
// leaves them zero.
extern "C" __global__ void churn(DeviceHeap *heap, u32 rounds, u32 least, u32 most, u32 shape, u32 seed, u32 *marks, u32 *faults) {
  u32 *held[4] = {};
  u32 bytes[4] = {};
  u32 wrong = 0;
  for (u32 round = 0; round < rounds + 4; round++) {
    const u32 at = round & 3;
    if (held[at] != nullptr) {
      u32 *const mark = marks + (reinterpret_cast<u64>(held[at]) - heap->base) / 16;
      const u32 words = bytes[at] / 4;
      wrong += held[at][0] != thread() || held[at][words - 1] != thread();
      for (u32 unit = 0; marks != nullptr && unit < words / 4; unit++) wrong += atomicExch(&mark[unit], 0) != thread() + 1;
      heap->free(held[at]);
    }
    held[at] = nullptr;
    if (round >= rounds) continue;
    bytes[at] = wanted(hash(thread() + seed) + round, least, most, shape) & ~15u;
    if (bytes[at] == 0) bytes[at] = 16;
    held[at] = static_cast<u32 *>(heap->allocate(bytes[at]));
    if (held[at] == nullptr) continue;
    u32 *const mark = marks + (reinterpret_cast<u64>(held[at]) - heap->base) / 16;
    const u32 words = bytes[at] / 4;
    for (u32 unit = 0; marks != nullptr && unit < words / 4; unit++) wrong += atomicExch(&mark[unit], thread() + 1) != 0;
    held[at][0] = thread();
    held[at][words - 1] = thread();
  }
  if (wrong != 0) atomicAdd(faults, wrong);
}

// Past the first-level cache, which does not see what others write.
static __device__ uint4 loadQuad(const uint4 *from) {
  uint4 quad;
  asm volatile("ld.relaxed.gpu.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(quad.x), "=r"(quad.y), "=r"(quad.z), "=r"(quad.w)
               : "l"(from)
               : "memory");
  return quad;
}

// Takes and frees in one kernel, `rounds` times, up to `places` blocks held at a time, at most four. A thread writes
// words of its own all over a block, and must find them there when it frees the block.
extern "C" __global__ void hold(DeviceHeap *heap, u32 rounds, u32 places, u32 least, u32 most, u32 shape, u32 seed, u32 *faults) {
  uint4 *held[4] = {};
  u32 quads[4] = {};
  u32 wrong = 0;
  for (u32 round = 0; round < rounds + places; round++) {
    const u32 at = round % places;
    const uint4 own = {thread(), seed, at, ~thread()};
    if (held[at] != nullptr) {
      for (u32 index = 0; index < quads[at]; index++) {
        const uint4 quad = loadQuad(&held[at][index]);
        wrong += quad.x != own.x || quad.y != own.y || quad.z != own.z || quad.w != own.w;
      }
      heap->free(held[at]);
    }
    held[at] = nullptr;
    if (round >= rounds) continue;
    const u32 bytes = wanted(hash(thread() + seed) + round, least, most, shape);
    quads[at] = (bytes + 15) / 16;
    held[at] = static_cast<uint4 *>(heap->allocate(bytes));
    for (u32 index = 0; held[at] != nullptr && index < quads[at]; index++) held[at][index] = own;
  }
  if (wrong != 0) atomicAdd(faults, wrong);
}
