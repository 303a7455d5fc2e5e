// A hash table that a kernel builds from nodes that it allocates itself: 100,000 threads count as many words. Words
// in the same bucket form a linked list, and the first occurrence of a word allocates its node. A second kernel walks
// the lists and adds up the counts. A third frees the nodes, so that the heap ends as it began.
// In a clone: npm run build && node dist/examples/hash-table.js

import { type CompileOptions, formatBytes, MiB, openDevice } from 'cuda-mempool'
import { createDeviceHeap, SimulatedHeap } from 'cuda-mempool/kernels'
import type { DeviceMemory } from 'cuda-mempool/simulated'

const WORDS = 100_000
const DIFFERENT = 5_000
const BUCKETS = 1024

const SOURCE = `
#include "cuda_mempool.cuh"
using cuda_mempool::DeviceHeap;

struct Node { Node *next; unsigned word; unsigned count; };

__device__ Node *find(Node *from, const Node *end, unsigned word) {
  for (Node *node = from; node != end; node = node->next) if (node->word == word) return node;
  return nullptr;
}

extern "C" __global__ void count_words(DeviceHeap *heap, Node **buckets, unsigned bucketCount, const unsigned *words, unsigned count) {
  const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
  if (thread >= count) return;
  const unsigned word = words[thread];
  Node *volatile *const bucket = &buckets[word % bucketCount];
  Node *searched = nullptr; // the list from here on does not have the word
  Node *mine = nullptr;
  for (;;) {
    Node *const first = *bucket;
    __threadfence(); // makes all writes to published nodes visible
    if (Node *const known = find(first, searched, word)) {
      atomicAdd(&known->count, 1);
      heap->free(mine); // another thread was faster
      return;
    }
    if (mine == nullptr) mine = static_cast<Node *>(heap->allocate(sizeof(Node)));
    if (mine == nullptr) return; // the heap is full, and has counted that
    searched = first;
    mine->next = first;
    mine->word = word;
    mine->count = 1;
    __threadfence(); // before others see it
    if (atomicCAS((unsigned long long *)bucket, (unsigned long long)first, (unsigned long long)mine) == (unsigned long long)first) return;
  }
}

extern "C" __global__ void sum_up(Node *const *buckets, unsigned bucketCount, unsigned *sums) {
  const unsigned bucket = blockIdx.x * blockDim.x + threadIdx.x;
  if (bucket >= bucketCount) return;
  for (const Node *node = buckets[bucket]; node != nullptr; node = node->next) {
    atomicAdd(&sums[0], 1);
    atomicAdd(&sums[1], node->count);
  }
}

extern "C" __global__ void free_nodes(DeviceHeap *heap, Node **buckets, unsigned bucketCount) {
  const unsigned bucket = blockIdx.x * blockDim.x + threadIdx.x;
  if (bucket >= bucketCount) return;
  for (Node *node = buckets[bucket]; node != nullptr;) {
    Node *const next = node->next;
    heap->free(node);
    node = next;
  }
  buckets[bucket] = nullptr;
}
`

// The kernels for the simulated device, in TypeScript: a node is the words [next, its upper half, word, count].
const simulated: CompileOptions['simulated'] = {
  count_words: ({ args, memory }) => {
    const heap = new SimulatedHeap(memory, args.pointer(0))
    for (const word of memory.load(Uint32Array, args.pointer(3), args.uint32(4))) {
      const bucket = args.pointer(1) + 8 * (word % args.uint32(2))
      const head = memory.load(Uint32Array, bucket, 2)
      let at = addressOf(head)
      while (at !== 0 && memory.load(Uint32Array, at + 8, 1)[0] !== word)
        at = addressOf(memory.load(Uint32Array, at, 2))
      if (at !== 0) {
        memory.store(at + 12, Uint32Array.of(countOf(memory, at) + 1))
        continue
      }
      const node = heap.allocate(16)
      if (node === 0) continue
      memory.store(node, Uint32Array.of(...head, word, 1))
      memory.store(bucket, Uint32Array.of(node, node / 2 ** 32))
    }
  },
  sum_up: ({ args, memory }) => {
    let [nodes, counts] = [0, 0]
    for (let bucket = 0; bucket < args.uint32(1); bucket++) {
      let at = addressOf(memory.load(Uint32Array, args.pointer(0) + 8 * bucket, 2))
      for (; at !== 0; at = addressOf(memory.load(Uint32Array, at, 2))) {
        nodes++
        counts += countOf(memory, at)
      }
    }
    memory.store(args.pointer(2), Uint32Array.of(nodes, counts))
  },
  free_nodes: ({ args, memory }) => {
    const heap = new SimulatedHeap(memory, args.pointer(0))
    for (let bucket = 0; bucket < args.uint32(2); bucket++) {
      let at = addressOf(memory.load(Uint32Array, args.pointer(1) + 8 * bucket, 2))
      while (at !== 0) {
        const next = addressOf(memory.load(Uint32Array, at, 2))
        heap.free(at)
        at = next
      }
    }
    memory.fill(args.pointer(1), 8 * args.uint32(2), 0)
  },
}

function countOf(memory: DeviceMemory, node: number): number {
  const [count = 0] = memory.load(Uint32Array, node + 12, 1)
  return count
}

function addressOf([low = 0, high = 0]: Uint32Array): number {
  return high * 2 ** 32 + low
}

using device = openDevice('auto')
using pool = device.createPool()
using stream = device.createStream()
using module = device.compileKernels(SOURCE, { simulated })
const countWords = module.kernel('count_words')
const sumUp = module.kernel('sum_up')
const freeNodes = module.kernel('free_nodes')

using region = pool.allocate(16 * MiB, stream)
using heap = createDeviceHeap(device, region, { stream })
using buckets = pool.allocate(8 * BUCKETS, stream)
using words = pool.allocateArray(Uint32Array, WORDS, stream)
using sums = pool.allocateArray(Uint32Array, 2, stream)
buckets.fill(0)
sums.fill(0)
words.write(Uint32Array.from({ length: WORDS }, (_, index) => (index * index) % DIFFERENT))

const block = 256
const threadEach = (count: number) => ({ grid: Math.ceil(count / block), block, stream })
countWords.launch(threadEach(WORDS), heap, buckets, BUCKETS, words, WORDS)
sumUp.launch(threadEach(BUCKETS), buckets, BUCKETS, sums)
const [nodes, counted] = await sums.read()
const { liveBlocks, liveBytes, failures } = await heap.stats()
console.log(`${device.name}: ${counted} words counted, ${nodes} different ones, each with a node of its own`)
console.log(`the heap has ${liveBlocks} blocks in use, ${formatBytes(liveBytes)}, and refused ${failures}`)

freeNodes.launch(threadEach(BUCKETS), heap, buckets, BUCKETS)
await stream.finished()
const after = await heap.stats()
heap.check()
console.log(`after freeing them ${after.liveBlocks} are in use; at most ${formatBytes(after.peakUsedBytes)} were`)
if (counted !== WORDS || nodes !== liveBlocks || after.liveBlocks !== 0) process.exitCode = 1
