// A kernel that launches kernels on one heap. The parent takes a block and hands it down. Its children take and free
// blocks of their own. A tail launch, which begins when they have ended, frees the rest. Device-side launches need
// the toolkit's runtime for devices, so this is a program of its own and no part of the shipped PTX:
//   nvcc -std=c++17 -rdc=true -arch=native dynamic-parallelism.cu -lcudadevrt -o dynamic-parallelism
// It prints one line of JSON, and fails if something is wrong.

#include <cstdio>
#include "control.cu"

constexpr u32 CHILDREN = 8;
constexpr u32 THREADS = 256;
constexpr u32 BLOCKS = CHILDREN * THREADS;
constexpr u32 MESSAGE = 0x600d;

// Every thread takes two blocks, frees one and leaves the other for the tail.
__global__ void child(DeviceHeap *heap, const u32 *message, u32 **blocks, u32 first, u32 *faults) {
  const u32 index = first + blockIdx.x * blockDim.x + threadIdx.x;
  u32 *const kept = static_cast<u32 *>(heap->allocate(16 + index % 512));
  u32 *const brief = static_cast<u32 *>(heap->allocate(64));
  if (kept == nullptr || brief == nullptr || *message != MESSAGE) atomicAdd(faults, 1);
  if (kept != nullptr) *kept = index;
  blocks[index] = kept;
  heap->free(brief);
}

__global__ void tail(DeviceHeap *heap, u32 *message, u32 **blocks, u32 *faults) {
  const u32 index = blockIdx.x * blockDim.x + threadIdx.x;
  if (blocks[index] == nullptr || *blocks[index] != index) atomicAdd(faults, 1);
  heap->free(blocks[index]);
  if (index == 0) {
    heap->free(message);
    heap->free(blocks);
  }
}

__global__ void parent(DeviceHeap *heap, u32 *faults) {
  u32 *const message = static_cast<u32 *>(heap->allocate(4));
  u32 **const blocks = static_cast<u32 **>(heap->allocate(BLOCKS * sizeof(u32 *)));
  if (message == nullptr || blocks == nullptr) {
    atomicAdd(faults, 1);
    return;
  }
  *message = MESSAGE;
  for (u32 first = 0; first < BLOCKS; first += THREADS) child<<<1, THREADS>>>(heap, message, blocks, first, faults);
  tail<<<CHILDREN, THREADS, 0, cudaStreamTailLaunch>>>(heap, message, blocks, faults);
  if (cudaGetLastError() != cudaSuccess) atomicAdd(faults, 1);
}

int main() {
  constexpr u32 SUPERBLOCKS = 512;
  constexpr u64 TABLES = (128 << 10) + SUPERBLOCKS * BITMAP_BYTES;
  char *region;
  u32 *faults;
  cudaMalloc(&region, TABLES + (static_cast<u64>(SUPERBLOCKS + 1) << SUPERBLOCK_SHIFT));
  cudaMalloc(&faults, sizeof(u32));
  cudaMemset(faults, 0, sizeof(u32));
  DeviceHeap *const heap = reinterpret_cast<DeviceHeap *>(region);
  const u64 base = (reinterpret_cast<u64>(region) + TABLES + SUPERBLOCK_BYTES - 1) & ~static_cast<u64>(SUPERBLOCK_BYTES - 1);
  heap_initialise<<<64, 256>>>(heap, base, SUPERBLOCKS, SUPERBLOCKS, 31);
  for (u32 round = 0; round < 10; round++) parent<<<1, 1>>>(heap, faults);
  const cudaError_t error = cudaDeviceSynchronize();

  static struct {
    DeviceHeap heap;
    Record records[recordsFor(SUPERBLOCKS)];
  } copy;
  u32 wrong = 0;
  cudaMemcpy(&copy, heap, sizeof copy, cudaMemcpyDeviceToHost);
  cudaMemcpy(&wrong, faults, sizeof wrong, cudaMemcpyDeviceToHost);
  u64 allocations = 0, live = 0;
  for (const Stripe &stripe : copy.heap.stripes) allocations += stripe.allocations;
  for (const Record &record : copy.records) {
    const u32 freeBlocks = static_cast<u32>(record.word) - static_cast<u32>(BIAS);
    if (record.word >> 62 == SMALL) live += capacityOfClass(record.word >> 32 & 31) - freeBlocks;
    else live += record.word >> 62 == RUN;
  }
  printf("{\"error\": \"%s\", \"allocations\": %llu, \"liveBlocks\": %llu, \"doubleFrees\": %llu, "
         "\"invalidFrees\": %llu, \"faults\": %u}\n",
         cudaGetErrorString(error), allocations, live, copy.heap.doubleFrees, copy.heap.invalidFrees, wrong);
  return error == cudaSuccess && wrong == 0 && live == 0 ? 0 : 1;
}
