// Memory taken inside running kernels, from a region that the host took from any pool and initialised.
//
//   DevicePool   one atomicAdd a thread: the simplest allocator there is, with bounds
//   DeviceArena  the same memory, one atomicAdd a warp
//   DeviceHeap   malloc and free
//
// The host makes and resets them (docs/in-kernel.md); a kernel gets a pointer and calls allocate and free. Nothing
// here takes a lock, since blocks of a grid are not scheduled fairly: a thread that cannot go on takes another way,
// and after a number of tries returns nullptr. C++17, for nvcc and NVRTC, compute capability 7.0 and later.
//
// Define CUDA_MEMPOOL_DEBUG to trap at a double or invalid free, which else is counted and ignored.
//
// All is in one file so that kernels include one header, and NVRTC finds it as one text.

#ifndef CUDA_MEMPOOL_CUH
#define CUDA_MEMPOOL_CUH

namespace cuda_mempool {

using u32 = unsigned int;
using i32 = int;
using u64 = unsigned long long;

// Loads that see what other multiprocessors wrote: the first-level cache keeps no promise.
__device__ inline u32 load(const u32 *from) {
  u32 value;
  asm volatile("ld.relaxed.gpu.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}

__device__ inline i32 load(const i32 *from) { return static_cast<i32>(load(reinterpret_cast<const u32 *>(from))); }

__device__ inline u64 load(const u64 *from) {
  u64 value;
  asm volatile("ld.relaxed.gpu.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
  return value;
}

// Orders this thread's earlier memory accesses before its later ones, for all threads of the device.
__device__ inline void fence() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

__device__ inline u32 lane() {
  u32 value;
  asm("mov.u32 %0, %%laneid;" : "=r"(value));
  return value;
}

__device__ inline u32 multiprocessor() {
  u32 value;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(value));
  return value;
}

// A number that differs between the warps that run, and between tries, for where to begin a search.
__device__ inline u32 spread(u32 tries) {
  u32 warp;
  asm volatile("mov.u32 %0, %%warpid;" : "=r"(warp));
  return ((multiprocessor() * 64 + warp) * 0x9e3779b1u + tries * 0x85ebca6bu) >> 8;
}

__device__ inline u32 lowestLane(u32 lanes) { return __ffs(lanes) - 1; }

// Lanes of `lanes` below this one: its rank among them.
__device__ inline u32 rankAmong(u32 lanes) { return __popc(lanes & ((1u << lane()) - 1)); }

// The calling lanes that use the same structure. Lanes of one warp may use different ones at the same time.
__device__ inline u32 lanesOf(const void *structure) {
  const u32 active = __activemask();
  int same;
  __match_all_sync(active, reinterpret_cast<u64>(structure), &same);
  return same ? active : __match_any_sync(active, reinterpret_cast<u64>(structure));
}

// The bits of all lanes of a group, for its lowest lane. Half of a group's lanes drop out in each step.
__device__ inline u32 gathered(u32 active, u32 group, u32 bits) {
  u32 above = group & (~1u << lane());
  u32 rank = rankAmong(group);
  while (__any_sync(active, above)) {
    const u32 next = __ffs(above);
    const u32 other = __shfl_sync(active, bits, next == 0 ? lane() : next - 1);
    bits |= other;
    above &= __ballot_sync(active, (rank & 1) == 0);
    rank >>= 1;
  }
  return bits;
}

// ---------------------------------------------------------------------------------------------------------------- bump

// A region that only grows, and is reset as a whole. `offset` may pass `limit`: requests beyond it were refused.
struct DevicePool {
  u64 base;      // address of the first byte, a multiple of 16
  u64 limit;     // bytes that may be handed out; the host raises it while kernels run
  u64 reserved;  // bytes that the limit can ever reach
  u64 failures;
  u64 peak;         // the most that was handed out before a reset
  u64 unused[11];   // the offset has a cache line of its own
  u64 offset;

  // At least `bytes` bytes at a multiple of 16, or nullptr, which is counted.
  __device__ void *allocate(u64 bytes) {
    if (bytes == 0 || bytes > reserved) return refuse(1);
    const u64 size = (bytes + 15) & ~15ull;
    const u64 at = atomicAdd(&offset, size);
    if (at + size > limit && at + size > load(&limit)) {
      giveBack(at, at + size);
      return refuse(1);
    }
    return reinterpret_cast<void *>(base + at);
  }

protected:
  __device__ void *refuse(u32 count) {
    atomicAdd(&failures, static_cast<u64>(count));
    return nullptr;
  }

  // Takes an addition back if it was the last one. After a later addition the offset stays, since subtracting would
  // hand out memory twice. It stays below the point where it could wrap.
  __device__ void giveBack(u64 from, u64 to) {
    if (atomicCAS(&offset, to, from) != to) atomicMin(&offset, reserved);
  }
};

// The same region, taken from by whole warps.
struct DeviceArena : DevicePool {
  // As DevicePool::allocate. The threads of a warp that call together cost one atomicAdd, equal sizes or not.
  __device__ void *allocate(u64 bytes) {
    const u32 active = lanesOf(this);
    const bool valid = bytes != 0 && bytes <= reserved;
    const u64 units = valid ? (bytes + 15) >> 4 : 0;
    u64 before = 0;
    u64 total = 0;
    int equal;
    __match_all_sync(active, units, &equal);
    if (equal) {
      before = units * rankAmong(active);
      total = units * __popc(active);
    } else {
      // The sum over the lanes below, one bit of the sizes after the other.
      const u32 below = active & ((1u << lane()) - 1);
      for (u32 bit = 0; __any_sync(active, (units >> bit) != 0); bit++) {
        const u32 votes = __ballot_sync(active, (units >> bit) & 1);
        before += static_cast<u64>(__popc(votes & below)) << bit;
        total += static_cast<u64>(__popc(votes)) << bit;
      }
    }
    const u32 leader = lowestLane(active);
    u64 at = 0;
    if (lane() == leader) at = atomicAdd(&offset, total * 16);
    at = __shfl_sync(active, at, leader);
    const u64 end = at + total * 16;
    at += before * 16;
    if (__any_sync(active, end > limit)) return allocateAtEnd(active, at, units * 16, end);
    if (!valid) return refuse(1);
    return reinterpret_cast<void *>(base + at);
  }

private:
  // Some lanes may still fit. Sizes add up along the lanes, so those are the first ones.
  __device__ void *allocateAtEnd(u32 active, u64 at, u64 size, u64 end) {
    const u32 leader = lowestLane(active);
    const u64 room = __shfl_sync(active, load(&limit), leader);
    const bool within = at + size <= room;
    const bool fits = within && size != 0;
    const u32 first = __ballot_sync(active, within);
    const u32 refused = __ballot_sync(active, !fits);
    const u64 lastEnd = __shfl_sync(active, at + size, first == 0 ? leader : 31 - __clz(first));
    const u64 start = __shfl_sync(active, at, leader);
    if (lane() == leader) {
      if (end > room) giveBack(first == 0 ? start : lastEnd, end);
      if (refused != 0) refuse(__popc(refused));
    }
    return fits ? reinterpret_cast<void *>(base + at) : nullptr;
  }
};

// ---------------------------------------------------------------------------------------------------------------- heap

// A superblock holds blocks of one class, or is part of a run. Its bitmap lies apart from all blocks. A bit is set
// exactly while a block is in use, in any class. A late second free, when the superblock has another class, therefore
// finds a clear bit or frees a block, and the counts are right either way.
constexpr u32 SUPERBLOCK_SHIFT = 16;
constexpr u32 SUPERBLOCK_BYTES = 1u << SUPERBLOCK_SHIFT;
constexpr u32 BITMAP_SHIFT = 9;
constexpr u32 BITMAP_BYTES = 1u << BITMAP_SHIFT;  // a bit for each 16 bytes

constexpr u32 CLASSES = 32;
constexpr u32 LARGEST_BLOCK = 8192;
constexpr u32 SLOTS = 128;        // the most superblocks of a class that serve at once
constexpr u32 LARGE = 2 * CLASSES * SLOTS;  // superblocks of a large heap: twice as many as slots can keep
constexpr u32 BATCH = 8;          // superblocks that a large heap counts as idle together
constexpr u32 STRIPES = 16;       // rows of counters
constexpr u32 GROUP = 512;        // records among which those of neighbours are spread
constexpr u32 TRIES = 256;        // before an allocation gives up, or goes another way
constexpr u32 PATIENCE = 16;      // slots that a thread looks at before it takes a superblock that it soon uses up
constexpr u32 LOOKS = 256;        // the most superblocks that a thread looks at before it takes the heap for full

// Steps of 16 bytes to 64, then four an octave: 80, 96, 112, 128, 160, … 8192.
__device__ __host__ constexpr u32 bytesOfClass(u32 sizeClass) {
  return sizeClass < 4 ? 16 * (sizeClass + 1) : (16 * (5 + (sizeClass & 3))) << ((sizeClass - 4) >> 2);
}

// The smallest class for 1 to LARGEST_BLOCK bytes.
__device__ inline u32 classOf(u32 bytes) {
  const u32 last = (bytes - 1) >> 4;
  if (last < 4) return last;
  const u32 octave = 31 - __clz(last);
  return 4 * (octave - 1) + ((last >> (octave - 2)) & 3);
}

__device__ __host__ constexpr u32 capacityOfClass(u32 sizeClass) { return SUPERBLOCK_BYTES / bytesOfClass(sizeClass); }

// The state of a superblock is one word, so that all of it changes at once. The upper half is a tag, the lower half
// the number of free blocks plus BIAS. A thread subtracts from the count before it looks at the result, and adds back
// the excess, even if the superblock has changed meanwhile. The count may be off for a moment, in any state. So a tag
// changes by an addition or by a compare-and-swap of the whole word, and never by a store.
constexpr u64 BIAS = 1ull << 31;
// The upper two bits of the tag: idle, divided into blocks of a class, or the beginning of a run.
enum State : u32 { IDLE = 0, SMALL = 1, RUN = 2 };
// Bits 5 and 6 of the tag say where a SMALL one is listed: nowhere, since it is full; in the set of its class; in a
// slot.
enum Place : u32 { LOOSE = 0, LISTED = 1, ATTACHED = 2 };
__device__ inline u32 smallTag(u32 sizeClass, Place place, u32 slot) {
  return SMALL << 30 | slot << 8 | place << 5 | sizeClass;
}
__device__ inline u32 tagOf(u64 word) { return static_cast<u32>(word >> 32); }
__device__ inline u32 stateOf(u64 word) { return tagOf(word) >> 30; }
__device__ inline u32 placeOf(u64 word) { return tagOf(word) >> 5 & 3; }
__device__ inline u32 slotOf(u64 word) { return tagOf(word) >> 8 & 0xff; }
__device__ inline u32 sizeClassOf(u64 word) { return tagOf(word) & 31; }
__device__ inline u32 runLengthOf(u64 word) { return tagOf(word) & 0x3fffffff; }
__device__ inline i32 freeBlocksOf(u64 word) { return static_cast<i32>(static_cast<u32>(word) - static_cast<u32>(BIAS)); }
__device__ inline u64 retagged(u64 word, u32 tag) { return static_cast<u64>(tag) << 32 | static_cast<u32>(word); }

// The word of a superblock, and the first bits of its bitmap. Neighbours are in use at the same time, and operations on
// one cache line queue up. So the records of neighbours lie 64 bytes apart.
struct alignas(16) Record {
  u64 word;
  u32 map[2];
};
__device__ __host__ constexpr u32 recordsFor(u32 superblocks) { return (superblocks + GROUP - 1) & ~(GROUP - 1); }
__device__ __host__ constexpr u32 recordOf(u32 superblock) {
  return (superblock & ~(GROUP - 1)) | (superblock * 4 & (GROUP - 1)) | (superblock / (GROUP / 4) & 3);
}

// Groups of multiprocessors count apart, since additions to one cache line queue up.
struct alignas(128) Stripe {
  u64 allocations;
  u64 failures;
  u32 returned;  // superblocks that became idle; each full batch of them is counted as idle
};

struct alignas(32) SetCount {
  i32 words;   // with members
  u32 recent;  // the word that got a first member most recently
};

// A set of superblocks: a bit for each, a summary bit for each word with members, and the number of words with members.
struct SuperblockSet {
  static constexpr u32 NONE = ~0u;

  SetCount *count;
  u64 *words;
  u64 *summary;
  u32 wordCount;

  __device__ void insert(u32 index) { insertBits(index >> 6, 1ull << (index & 63)); }

  // Whether this call took `index` out.
  __device__ bool remove(u32 index) {
    const u64 bit = 1ull << (index & 63);
    return (removeBits(index >> 6, bit) & bit) != 0;
  }

  __device__ bool isEmpty() { return load(&count->words) <= 0; }

  // Takes out a member, preferably `start`; NONE if others were faster. It goes on to the next words, and every `near`
  // looks to a random one below `most`. It is not inlined, which would take registers from all that calls it.
  __device__ __noinline__ u32 find(u32 start, u32 most, u32 near) {
    u32 word = start >> 6;
    u32 bit = start & 63;
    if (word >= wordCount) word = 0;
    for (u32 tries = 0; tries < TRIES; tries++) {
      const u64 mask = 1ull << bit;
      u64 members = removeBits(word, mask);
      if ((members & mask) != 0) return word << 6 | bit;
      // Threads that began at the same place go on to different ones.
      const u32 random = spread(tries);
      const bool far = tries % near == near - 1;
      if (far) members = 0;
      u32 from = far ? random % ((most >> 6) + 1) : word + 1;
      if (from >= wordCount) from -= wordCount;
      while (members == 0 && tries++ < TRIES && !isEmpty()) {
        word = wordWithMembers(from < wordCount ? from : 0);
        if (word == NONE) break;
        members = load(&words[word]);
        if (members == 0) tidy(word);
        from = word + 1;
      }
      if (members == 0) break;
      bit = bitFrom(members, random);
    }
    return NONE;
  }

  // Sets bits of a word; returns its former value.
  __device__ u64 insertBits(u32 word, u64 bits) {
    const u64 before = atomicOr(&words[word], bits);
    if (before == 0) {
      atomicOr(&summary[word >> 6], 1ull << (word & 63));
      atomicExch(&count->recent, word);
      __threadfence();
      atomicAdd(&count->words, 1);
    }
    return before;
  }

  // Clears bits of a word; returns its former value.
  __device__ u64 removeBits(u32 word, u64 bits) {
    const u64 before = atomicAnd(&words[word], ~bits);
    if ((before & bits) != 0 && (before & ~bits) == 0) {
      atomicSub(&count->words, 1);
      tidy(word);
    }
    return before;
  }

private:
  // A word without members need not be in the summary; one with members must be, but for a moment.
  __device__ void tidy(u32 word) {
    const u64 bit = 1ull << (word & 63);
    atomicAnd(&summary[word >> 6], ~bit);
    __threadfence();
    if (load(&words[word]) != 0) atomicOr(&summary[word >> 6], bit);
  }

  __device__ static u32 bitFrom(u64 bits, u32 start) {
    start &= 63;
    const u64 rotated = start == 0 ? bits : bits >> start | bits << (64 - start);
    return rotated == 0 ? start : (__ffsll(static_cast<long long>(rotated)) - 1 + start) & 63;
  }

  // The first word with members from `word` on, with wrap-around.
  __device__ u32 wordWithMembers(u32 word) {
    const u32 summaryCount = (wordCount + 63) >> 6;
    u32 at = word >> 6;
    u64 bits = load(&summary[at]) & ~0ull << (word & 63);
    for (u32 turn = 0; turn <= summaryCount; turn++) {
      if (bits != 0) return at << 6 | (__ffsll(static_cast<long long>(bits)) - 1);
      at = at + 1 == summaryCount ? 0 : at + 1;
      bits = load(&summary[at]);
    }
    return NONE;
  }
};

// malloc and free for kernels. Blocks of up to 8 KiB have 32 classes and lie in superblocks of 64 KiB, each of one
// class. Larger blocks are runs of neighbouring superblocks. The superblocks' records and the sets follow this
// structure; the bitmaps lie before superblock 0.
//
// A thread does not wait for an atomic operation whose result it does not use. That may arrive after later ones, until
// a fence. Whatever leads other threads to its effect needs a fence before it (src/kernel-memory/README.md).
struct DeviceHeap {
  u64 base;      // address of superblock 0
  u32 reserved;  // superblocks that the tables have room for
  u32 slotMask;  // slots in use per class, less one
  u32 limit;     // number of superblocks; the host raises it while kernels run
  u32 peak;      // the most superblocks that were in use at once
  u32 highest;   // one more than the highest superblock that was ever used
  u32 claimed;   // the limit that is claimed: each growth takes its part from here
  u64 doubleFrees;
  u64 invalidFrees;
  u32 slotted;  // a bit for each class that has had a superblock in a slot
  Stripe stripes[STRIPES];
  alignas(128) i32 idleCount;    // the idle superblocks, but for batches that are not full
  SetCount counts[CLASSES + 1];  // of the sets: the superblocks with room of each class, and the idle ones
  u32 slots[CLASSES][SLOTS];

  // At least `bytes` bytes at a multiple of 16 (of the size, if that is a power of two of up to 8 KiB; of 64 KiB, if
  // it is more), or nullptr, which is counted. The threads of a warp that want the same class share the work.
  __device__ void *allocate(u64 bytes) {
    const u32 active = __activemask();
    void *const block = bytes == 0 || bytes > LARGEST_BLOCK ? allocateRun(bytes) : allocateBlock(static_cast<u32>(bytes));
    if (block == nullptr) countFailures();
    __syncwarp(active);  // lanes that went different ways would go on apart
    return block;
  }

  // Gives back a block that `allocate` returned; nullptr does nothing. A pointer that is no block in use is counted
  // and ignored.
  __device__ void free(void *block) {
    const u32 active = __activemask();
    __syncwarp(active);  // accesses of each lane come before the fence of the lane that frees for it
    if (block != nullptr) giveBack(reinterpret_cast<u64>(block));
    __syncwarp(active);
  }

  // The idle superblocks.
  __device__ SuperblockSet idle() { return set(CLASSES); }

private:
  static constexpr u32 EMPTY = ~0u;      // a slot without a superblock
  static constexpr u32 BUSY = ~0u - 1;   // a slot whose superblock a thread is changing
  static constexpr u32 NO_SLOT = ~0u;

  // `count` promised blocks of a superblock: that many bits of its map are clear, probably from `ticket` on.
  struct Grant {
    u32 superblock;
    u32 ticket;
    u32 count;
  };

  __device__ void *allocateBlock(u32 bytes) {
    const u32 active = __activemask();
    const u32 sizeClass = classOf(bytes);
    void *result = nullptr;
    bool waiting = true;
    for (u32 turn = 0; turn < TRIES && __any_sync(active, waiting); turn++) {
      // Of the same heap, too: heaps are further apart than there are classes.
      const u32 peers = __match_any_sync(active, reinterpret_cast<u64>(this) + (waiting ? sizeClass : CLASSES));
      const u32 leader = lowestLane(peers);
      const u32 rank = rankAmong(peers);
      Grant grant = {0, 0, 0};
      u64 taken = 0;
      if (waiting && rank == 0) {
        grant = obtain(sizeClass, __popc(peers));
        if (grant.count != 0) taken = claim(grant);
      }
      grant.count = __shfl_sync(active, grant.count, leader);
      grant.superblock = __shfl_sync(active, grant.superblock, leader);
      grant.ticket = __shfl_sync(active, grant.ticket, leader);
      taken = __shfl_sync(active, taken, leader);
      if (!waiting) continue;
      if (rank < grant.count) {
        const u32 index = grant.ticket + rank;
        const bool isOther = taken >> ((grant.ticket & 31) + rank) & 1;
        result = isOther ? findBlock(grant.superblock, sizeClass) : blockAt(grant.superblock, sizeClass, index);
      }
      if (rank < grant.count || grant.count == 0) waiting = false;
    }
    fence();  // the bits were clear: accesses of the former owners come before those of the new ones
    return result;
  }

  __device__ void giveBack(u64 block) {
    const u64 start = base;  // read once: a fence empties the first-level cache
    const u64 offset = block - start;
    if (offset >> SUPERBLOCK_SHIFT >= reserved) return refuseFree(&invalidFrees, 1);
    const u32 superblock = static_cast<u32>(offset >> SUPERBLOCK_SHIFT);
    const u32 within = static_cast<u32>(offset) & (SUPERBLOCK_BYTES - 1);
    const u64 word = load(wordOf(superblock));
    fence();
    if (stateOf(word) != SMALL) return freeRun(superblock, within, word);
    const u32 sizeClass = sizeClassOf(word);
    const u32 index = within / bytesOfClass(sizeClass);
    if (index * bytesOfClass(sizeClass) != within || index >= capacityOfClass(sizeClass)) return refuseFree(&invalidFrees, 1);
    // One operation clears the bits of all lanes whose blocks share a word of the map. Lanes may use different heaps.
    u32 *const cell = map(start, superblock, index >> 5);
    const u32 active = __activemask();
    const u32 peers = __match_any_sync(active, reinterpret_cast<u64>(cell));
    const u32 bits = gathered(active, peers, 1u << (index & 31));
    if (rankAmong(peers) != 0) return;
    // Until the count is raised the superblock keeps its class.
    const u32 freed = __popc(atomicAnd(cell, ~bits) & bits);
    if (freed < __popc(peers)) refuseFree(&doubleFrees, __popc(peers) - freed);
    if (freed != 0) raise(superblock, freed);
  }

  __device__ Record *records() { return reinterpret_cast<Record *>(this + 1); }
  __device__ Record &record(u32 superblock) { return records()[recordOf(superblock)]; }
  __device__ u64 *wordOf(u32 superblock) { return &record(superblock).word; }
  // A word of a superblock's bitmap; superblock 0 begins at `start`.
  __device__ u32 *map(u64 start, u32 superblock, u32 word) {
    if (word < 2) return &record(superblock).map[word];
    return reinterpret_cast<u32 *>(start - (static_cast<u64>(superblock + 1) << BITMAP_SHIFT)) + word;
  }
  __device__ SuperblockSet set(u32 index) {
    const u32 wordCount = (reserved + 63) >> 6;
    const u32 summaryCount = (wordCount + 63) >> 6;
    u64 *start = reinterpret_cast<u64 *>(records() + recordsFor(reserved)) + static_cast<u64>(index) * (wordCount + summaryCount);
    return {&counts[index], start, start + wordCount, wordCount};
  }
  __device__ Stripe &stripe() { return stripes[multiprocessor() % STRIPES]; }

  // Promises up to `wanted` blocks of a class; 0 if the heap is full.
  __device__ Grant obtain(u32 sizeClass, u32 wanted) {
    Grant grant = {0, 0, 0};
    u32 passed = 0;
    for (u32 tries = 0; tries <= 2 * slotMask + TRIES && grant.count == 0; tries++) {
      u32 slot = (multiprocessor() + tries) & slotMask;
      u32 *const cell = &slots[sizeClass][slot];
      const u32 current = load(cell);
      if (current == BUSY) {
        // A thread that needs a small part of a superblock waits longer.
        const bool needsMuch = 8 * wanted * bytesOfClass(sizeClass) >= SUPERBLOCK_BYTES;
        if (tries < (needsMuch ? PATIENCE : 4 * PATIENCE) || !mayRefill(sizeClass)) {
          __nanosleep(200);
          continue;
        }
        slot = NO_SLOT;
      } else {
        if (current != EMPTY && (tries == 0 || freeBlocksOf(load(wordOf(current))) > 0)) {
          grant = reserve(current, sizeClass, wanted);
          if (grant.count != 0) break;
        }
        if (passed != 0 || !mayRefill(sizeClass)) {
          if (++passed <= slotMask) continue;
          if (!sweep() && !hasRoom(sizeClass, tries)) break;
          passed = 0;
          __nanosleep(200);
          continue;
        }
        if (atomicCAS(cell, current, BUSY) != current) continue;
        if (current != EMPTY) place(current, retagged(BIAS, smallTag(sizeClass, ATTACHED, slot)));
      }
      grant = refill(sizeClass, slot, wanted);
      if (slot == NO_SLOT) continue;
      if (current == EMPTY && (load(&slotted) >> sizeClass & 1) == 0) atomicOr(&slotted, 1u << sizeClass);
      __threadfence();
      atomicExch(&slots[sizeClass][slot], grant.count == 0 ? EMPTY : grant.superblock);
    }
    if (grant.count != 0) atomicAdd(&stripe().allocations, static_cast<u64>(grant.count));
    return grant;
  }

  __device__ bool mayRefill(u32 sizeClass) {
    const i32 listed = load(&counts[sizeClass].words);  // both loads at once
    const i32 left = load(&idleCount);
    return listed > 0 || left > 0;
  }

  // Whether a superblock has room for a class. While a thread holds it, it is in no set and no slot, and only its word
  // tells. Of a large heap this looks at a part.
  __device__ bool hasRoom(u32 sizeClass, u32 tries) {
    const u32 total = load(&limit);
    const u32 start = total <= LOOKS ? 0 : spread(tries) % (total - LOOKS);
    // Up to here a superblock that says that it is idle may be part of a run.
    u32 runEnd = start == 0 ? 0 : total;
    for (u32 at = start; at < total && at - start < LOOKS; at++) {
      const u64 word = load(wordOf(at));
      if (stateOf(word) == RUN) runEnd = at + runLengthOf(word);
      else if (stateOf(word) == SMALL) {
        if (isFull(word) || (sizeClassOf(word) == sizeClass && freeBlocksOf(word) > 0)) return true;
        runEnd = at;
      } else if (at >= runEnd) return true;
    }
    return false;
  }

  // Lowers the count of a superblock, whose state may have changed.
  __device__ Grant reserve(u32 superblock, u32 sizeClass, u32 wanted) {
    const u64 before = atomicAdd(wordOf(superblock), 0 - static_cast<u64>(wanted));
    const bool fits = stateOf(before) == SMALL && sizeClassOf(before) == sizeClass;
    return settleGrant(superblock, sizeClass, fits ? freeBlocksOf(before) : 0, wanted);
  }

  // Adds back the excess over the `present` blocks.
  __device__ Grant settleGrant(u32 superblock, u32 sizeClass, i32 present, u32 wanted) {
    const u32 count = present <= 0 ? 0 : min(static_cast<u32>(present), wanted);
    if (count < wanted) raise(superblock, wanted - count);
    const u32 capacity = capacityOfClass(sizeClass);
    return {superblock, count == 0 ? 0 : capacity - static_cast<u32>(present), count};
  }

  // A superblock with room, for a slot that the caller keeps busy or for no slot, and blocks of it.
  __device__ Grant refill(u32 sizeClass, u32 slot, u32 wanted) {
    // A superblock with few free blocks is soon full again. While half of the superblocks are idle, slots get idle
    // ones.
    const bool idleFirst = slot != NO_SLOT && load(&idleCount) > static_cast<i32>(load(&limit) / 2);
    Grant grant = {0, 0, 0};
#pragma unroll 1
    for (u32 turn = 0; turn < 2 && grant.count == 0; turn++) {
      grant = idleFirst == (turn == 0) ? refillWithIdle(sizeClass, slot, wanted) : refillWithListed(sizeClass, slot, wanted);
    }
    return grant;
  }

  __device__ Grant refillWithListed(u32 sizeClass, u32 slot, u32 wanted) {
    SuperblockSet listed = set(sizeClass);
    const u32 tag = placeTag(sizeClass, slot);
    for (u32 tries = 0; tries < TRIES && !listed.isEmpty(); tries++) {
      const u32 most = load(&highest);
      const u32 random = spread(tries);
      // Threads that begin at one word meet there; a random word is right if each word of the summary has members.
      const bool dense = load(&listed.count->words) > static_cast<i32>(most >> 12);
      const u32 found = listed.find(dense ? random % (most + 1) : load(&listed.count->recent) << 6 | (random & 63), most, 4);
      if (found == SuperblockSet::NONE) break;
      const u64 change = static_cast<u64>(tag - smallTag(sizeClass, LISTED, 0)) << 32;
      const u64 before = atomicAdd(wordOf(found), change - wanted);
      const Grant grant = settleGrant(found, sizeClass, freeBlocksOf(before), wanted);
      if (grant.count == 0 || slot == NO_SLOT) place(found, retagged(BIAS, tag));
      if (grant.count != 0) return grant;
    }
    return {0, 0, 0};
  }

  __device__ Grant refillWithIdle(u32 sizeClass, u32 slot, u32 wanted) {
    const u32 total = load(&limit);
    const u32 left = reserveIdle(1);
    if (left == 0) return {0, 0, 0};
    const u32 used = total > left ? total - left : 0;  // the limit may be about to be raised
    const u32 found = idle().find(used, 2 * used + 4096, 1);  // slots keep superblocks scattered there, and threads would meet
    if (found == SuperblockSet::NONE) {
      atomicAdd(&idleCount, 1);
      return {0, 0, 0};
    }
    noteUse(used + 1, found + 1);
    const u32 capacity = capacityOfClass(sizeClass);
    const u32 count = min(wanted, capacity);
    const bool lists = slot == NO_SLOT && count < capacity;
    const u32 tag = slot != NO_SLOT || lists ? placeTag(sizeClass, slot) : smallTag(sizeClass, LOOSE, 0);
    atomicAdd(wordOf(found), (static_cast<u64>(tag) << 32) + (capacity - count));
    if (slot == NO_SLOT) fence();  // `obtain` has one before it fills a slot
    if (lists) set(sizeClass).insert(found);
    return {found, 0, count};
  }

  __device__ void noteUse(u32 used, u32 end) {
    // Additions to one address queue up, also those that change nothing.
    if (used <= reserved && used > load(&peak)) atomicMax(&peak, used);
    if (end > load(&highest)) atomicMax(&highest, end);
  }

  __device__ static u32 placeTag(u32 sizeClass, u32 slot) {
    return slot == NO_SLOT ? smallTag(sizeClass, LISTED, 0) : smallTag(sizeClass, ATTACHED, slot);
  }

  // Sets the bits of a grant, by one operation for each word of the map. Returns the former bits from that word on.
  __device__ u64 claim(const Grant &grant) {
    const u32 first = grant.ticket >> 5;
    const u64 bits = ((1ull << grant.count) - 1) << (grant.ticket & 31);
    const u32 low = atomicOr(map(base, grant.superblock, first), static_cast<u32>(bits));
    const u32 high = bits >> 32 == 0 ? 0 : atomicOr(map(base, grant.superblock, first + 1), static_cast<u32>(bits >> 32));
    return static_cast<u64>(high) << 32 | low;
  }

  __device__ void *blockAt(u32 superblock, u32 sizeClass, u32 index) {
    return reinterpret_cast<void *>(base + (static_cast<u64>(superblock) << SUPERBLOCK_SHIFT) + index * bytesOfClass(sizeClass));
  }

  // A promised block, anywhere in the superblock, if the place that the grant suggests is in use.
  __device__ void *findBlock(u32 superblock, u32 sizeClass) {
    const u32 mapWords = (capacityOfClass(sizeClass) + 31) >> 5;
    const u32 lastPlaces = ~0u >> (32 * mapWords - capacityOfClass(sizeClass));  // the last word has bits of no block
    u32 at = spread(0) % mapWords;  // blocks in use crowd where grants begin
    u32 taken = ~0u;
    for (u32 tries = 0; tries < 4 * TRIES; tries++) {
      u32 clear = ~taken & (at + 1 == mapWords ? lastPlaces : ~0u);
      for (u32 step = 0; clear == 0 && step < mapWords; step++) {
        at = at + 1 == mapWords ? 0 : at + 1;
        clear = ~load(map(base, superblock, at)) & (at + 1 == mapWords ? lastPlaces : ~0u);
      }
      // Neighbours in the warp take different bits.
      const u32 bit = clear == 0 ? 0 : (__ffs(__funnelshift_r(clear, clear, lane())) - 1 + lane()) & 31;
      taken = atomicOr(map(base, superblock, at), 1u << bit);
      if ((taken >> bit & 1) == 0) return blockAt(superblock, sizeClass, at << 5 | bit);
    }
    raise(superblock, 1);
    atomicAdd(&stripe().allocations, ~0ull);
    return nullptr;
  }

  // More blocks of a superblock are free. The thread that raises the count from 0 lists a loose superblock. The thread
  // that frees the last block gives the superblock back. Slots of a large heap keep theirs, for the next blocks.
  __device__ void raise(u32 superblock, u32 count) {
    const u64 before = atomicAdd(wordOf(superblock), static_cast<u64>(count));
    const u64 now = before + count;
    if (stateOf(now) != SMALL || freeBlocksOf(now) <= 0) return;
    if (placeOf(now) == LISTED) giveBackListed(superblock, now);
    else if (placeOf(now) == LOOSE && (freeBlocksOf(before) <= 0 || isFull(now))) place(superblock, now);
    else if (placeOf(now) == ATTACHED && isFull(now) && !isLarge()) giveBackAttached(sizeClassOf(now), slotOf(now));
  }

  __device__ bool isLarge() { return reserved >= LARGE; }

  __device__ static bool isFull(u64 word) {
    return freeBlocksOf(word) == static_cast<i32>(capacityOfClass(sizeClassOf(word)));
  }

  // Gives back a listed superblock without blocks in use. A thread that cannot take it out of its set leaves the work
  // to its holder.
  __device__ void giveBackListed(u32 superblock, u64 now) {
    while (stateOf(now) == SMALL && placeOf(now) == LISTED && isFull(now)) {
      __threadfence();  // whoever lists a superblock has one, too: one of both sees what the other did
      if (!set(sizeClassOf(now)).remove(superblock)) return;
      if (atomicCAS(wordOf(superblock), now, BIAS) == now) return release(superblock);
      set(sizeClassOf(now)).insert(superblock);
      __threadfence();
      now = load(wordOf(superblock));
    }
  }

  // Puts a superblock that is loose, or that the caller holds, where it belongs: among the idle, in the set of its
  // class, or nowhere if it has no room. `now` is a guess at its word; its tag is right, or the superblock was placed.
  __device__ void place(u32 superblock, u64 now) {
    u64 *const cell = wordOf(superblock);
    const u32 tag = tagOf(now);
    const u32 sizeClass = sizeClassOf(now);
    for (;;) {
      const bool room = freeBlocksOf(now) > 0;
      const u64 next = isFull(now) ? BIAS : retagged(now, smallTag(sizeClass, room ? LISTED : LOOSE, 0));
      const u64 seen = atomicCAS(cell, now, next);
      if (seen != now) {
        if (tagOf(seen) != tag) return;
        now = seen;
        continue;
      }
      if (next == BIAS) return release(superblock);
      if (!room) return;
      set(sizeClass).insert(superblock);
      __threadfence();
      return giveBackListed(superblock, load(cell));
    }
  }

  // The number of idle superblocks if it is at least `wanted`, which are then promised to the caller; else 0. It
  // differs between callers, and so does where they begin to search.
  __device__ u32 reserveIdle(u32 wanted) {
    const i32 before = atomicSub(&idleCount, static_cast<i32>(wanted));
    if (before >= static_cast<i32>(wanted)) return static_cast<u32>(before);
    atomicAdd(&idleCount, static_cast<i32>(wanted));
    return 0;
  }

  __device__ void release(u32 superblock) {
    idle().insert(superblock);
    if ((atomicAdd(&stripe().returned, 1u) + 1) % batch() == 0) atomicAdd(&idleCount, static_cast<i32>(batch()));
  }

  // Of superblocks that are counted as idle together.
  __device__ u32 batch() { return isLarge() ? BATCH : 1; }

  // For when memory is short: counts batches that are not full, and gives back the superblocks without blocks in use
  // that slots keep. Whether there were any, or other threads are at it.
  __device__ bool sweep() {
    bool any = false;
#pragma unroll 1
    for (u32 at = 0; at < STRIPES; at++) {
      const u32 seen = load(&stripes[at].returned);
      const u32 left = seen % batch();
      if (left == 0) continue;
      any = true;
      if (atomicCAS(&stripes[at].returned, seen, seen - left) == seen) atomicAdd(&idleCount, static_cast<i32>(left));
    }
    for (u32 classes = load(&slotted); classes != 0; classes &= classes - 1) {
      for (u32 slot = 0; slot <= slotMask; slot++) any |= giveBackAttached(lowestLane(classes), slot);
    }
    return any;
  }

  // Gives back the superblock of a slot if it has no blocks in use. Whether it had none, or is being changed.
  __device__ bool giveBackAttached(u32 sizeClass, u32 slot) {
    u32 *const cell = &slots[sizeClass][slot];
    const u32 current = load(cell);
    if (current >= BUSY) return current == BUSY;
    if (!isFull(load(wordOf(current)))) return false;
    if (atomicCAS(cell, current, BUSY) != current) return true;
    const u64 full = retagged(BIAS + capacityOfClass(sizeClass), smallTag(sizeClass, ATTACHED, slot));
    const bool gives = atomicCAS(wordOf(current), full, BIAS) == full;
    atomicExch(cell, gives ? EMPTY : current);
    if (gives) release(current);
    return true;
  }

  // Neighbouring superblocks, for one thread.
  __device__ void *allocateRun(u64 bytes) {
    if (bytes == 0 || bytes > static_cast<u64>(reserved) << SUPERBLOCK_SHIFT) return nullptr;
    const u32 length = static_cast<u32>((bytes + SUPERBLOCK_BYTES - 1) >> SUPERBLOCK_SHIFT);
    u32 start = takeRun(length);
    bool gives = true;
    for (u32 tries = 0; start == SuperblockSet::NONE && gives && tries < PATIENCE; tries++) {
      gives = sweep();
      start = takeRun(length);  // also if another thread gave back the last ones
    }
    return start == SuperblockSet::NONE ? nullptr : blockAt(start, 0, 0);
  }

  // The first superblock of a run; NONE if the heap has none of that length.
  __device__ u32 takeRun(u32 length) {
    const u32 total = load(&limit);
    const u32 left = reserveIdle(length);
    if (left == 0) return SuperblockSet::NONE;
    const u32 used = total > left ? total - left : 0;
    const u32 start = claimRun(used, length, total);
    if (start == SuperblockSet::NONE) {
      atomicAdd(&idleCount, static_cast<i32>(length));
      return start;
    }
    noteUse(used + length, start + length);
    atomicAdd(wordOf(start), static_cast<u64>(RUN << 30 | length) << 32);
    fence();  // whoever gets the address may free it
    atomicAdd(&stripe().allocations, 1ull);
    return start;
  }

  // The first `length` neighbouring idle superblocks from `start` on, with wrap-around; NONE if the heap has no such
  // run.
  __device__ u32 claimRun(u32 start, u32 length, u32 total) {
    u32 at = start + length > total ? 0 : start;
    u32 walked = 0;
    while (walked <= 2 * total) {
      const u32 present = idleFrom(at, length);
      u32 next = at + present + 1;
      if (present == length) {
        const u32 claimed = claimFrom(at, length);
        if (claimed == length) return at;
        next = at + claimed + 1;
      }
      walked += next - at;
      at = next;
      if (at + length > total) {
        walked += total > at ? total - at : 0;
        at = 0;
      }
    }
    return SuperblockSet::NONE;
  }

  // How many of `length` superblocks from `at` on are idle, up to the first that is not.
  __device__ u32 idleFrom(u32 at, u32 length) {
    u32 present = 0;
    while (present < length) {
      const u32 shift = (at + present) & 63;
      const u64 taken = ~load(&idle().words[(at + present) >> 6]) >> shift;
      const u32 idleHere = taken == 0 ? 64 - shift : min(static_cast<u32>(__ffsll(static_cast<long long>(taken))) - 1, 64 - shift);
      present += idleHere;
      if (idleHere < 64 - shift) break;
    }
    return min(present, length);
  }

  // Takes `length` superblocks from `at` on, or none; returns how many there were up to the first that was gone.
  __device__ u32 claimFrom(u32 at, u32 length) {
    SuperblockSet all = idle();
    for (u32 claimed = 0; claimed < length;) {
      const u32 shift = (at + claimed) & 63;
      const u32 here = min(64 - shift, length - claimed);
      const u64 mask = (here == 64 ? ~0ull : (1ull << here) - 1) << shift;
      const u64 before = all.removeBits((at + claimed) >> 6, mask);
      if ((before & mask) != mask) {
        if ((before & mask) != 0) all.insertBits((at + claimed) >> 6, before & mask);
        insertIdle(at, claimed);
        return claimed + static_cast<u32>(__ffsll(static_cast<long long>((~before & mask) >> shift))) - 1;
      }
      claimed += here;
    }
    return length;
  }

  __device__ void insertIdle(u32 at, u32 length) {
    for (u32 inserted = 0; inserted < length;) {
      const u32 shift = (at + inserted) & 63;
      const u32 here = min(64 - shift, length - inserted);
      idle().insertBits((at + inserted) >> 6, (here == 64 ? ~0ull : (1ull << here) - 1) << shift);
      inserted += here;
    }
  }

  __device__ void freeRun(u32 superblock, u32 within, u64 now) {
    while (stateOf(now) == RUN && within == 0) {
      const u64 seen = atomicCAS(wordOf(superblock), now, retagged(now, 0));
      if (seen == now) {
        insertIdle(superblock, runLengthOf(now));
        atomicAdd(&idleCount, static_cast<i32>(runLengthOf(now)));
        return;
      }
      now = seen;
    }
    // An idle superblock has no blocks. Any other belongs to a run that begins before it.
    const bool idleNow = load(&idle().words[superblock >> 6]) >> (superblock & 63) & 1;
    refuseFree(idleNow && within % 16 == 0 ? &doubleFrees : &invalidFrees, 1);
  }

  __device__ void countFailures() {
    const u32 lanes = lanesOf(this);
    if (lane() == lowestLane(lanes)) atomicAdd(&stripe().failures, static_cast<u64>(__popc(lanes)));
  }

  __device__ void refuseFree(u64 *counter, u32 count) {
    atomicAdd(counter, static_cast<u64>(count));
#ifdef CUDA_MEMPOOL_DEBUG
    __trap();
#endif
  }
};

// The host reads and writes by these numbers, and has them too: src/kernel-memory/device-layout.ts. NVRTC knows no
// offsetof.
#ifndef __CUDACC_RTC__
static_assert(__builtin_offsetof(DevicePool, base) == 0, "");
static_assert(__builtin_offsetof(DevicePool, limit) == 8, "");
static_assert(__builtin_offsetof(DevicePool, reserved) == 16, "");
static_assert(__builtin_offsetof(DevicePool, failures) == 24, "");
static_assert(__builtin_offsetof(DevicePool, peak) == 32, "");
static_assert(__builtin_offsetof(DevicePool, offset) == 128, "");
static_assert(sizeof(DevicePool) == 136, "");
static_assert(sizeof(DeviceArena) == 136, "");
static_assert(__builtin_offsetof(DeviceHeap, base) == 0, "");
static_assert(__builtin_offsetof(DeviceHeap, reserved) == 8, "");
static_assert(__builtin_offsetof(DeviceHeap, slotMask) == 12, "");
static_assert(__builtin_offsetof(DeviceHeap, limit) == 16, "");
static_assert(__builtin_offsetof(DeviceHeap, peak) == 20, "");
static_assert(__builtin_offsetof(DeviceHeap, highest) == 24, "");
static_assert(__builtin_offsetof(DeviceHeap, claimed) == 28, "");
static_assert(__builtin_offsetof(DeviceHeap, doubleFrees) == 32, "");
static_assert(__builtin_offsetof(DeviceHeap, invalidFrees) == 40, "");
static_assert(__builtin_offsetof(DeviceHeap, slotted) == 48, "");
static_assert(__builtin_offsetof(DeviceHeap, stripes) == 128, "");
static_assert(__builtin_offsetof(DeviceHeap, idleCount) == 2176, "");
static_assert(__builtin_offsetof(DeviceHeap, counts) == 2208, "");
static_assert(__builtin_offsetof(DeviceHeap, slots) == 3264, "");
static_assert(sizeof(DeviceHeap) == 19712, "");
static_assert(__builtin_offsetof(Stripe, allocations) == 0, "");
static_assert(__builtin_offsetof(Stripe, failures) == 8, "");
static_assert(__builtin_offsetof(Stripe, returned) == 16, "");
static_assert(sizeof(Stripe) == 128, "");
static_assert(sizeof(SetCount) == 32, "");
static_assert(sizeof(Record) == 16, "");
#endif

}  // namespace cuda_mempool

#endif
