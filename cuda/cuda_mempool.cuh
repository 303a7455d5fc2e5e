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
constexpr u32 RUNS = CLASSES;     // larger blocks count as one more class
constexpr u32 SLOTS = 128;        // the most superblocks of a class that serve at once
constexpr u32 STRIPES = 16;       // rows of counters, since additions to one cache line queue up
constexpr u32 TRIES = 256;        // before an allocation gives up, or goes another way
constexpr u32 PATIENCE = 16;      // busy slots that a thread passes before it takes a superblock for itself
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

// A set of superblocks: a bit for each, a summary bit for each word with members, and the number of members. A thread
// lowers the number before it searches, so that no thread searches an empty set.
struct SuperblockSet {
  static constexpr u32 NONE = ~0u;

  i32 *count;
  u64 *words;
  u64 *summary;
  u32 wordCount;

  __device__ void insert(u32 index) {
    insertBits(index >> 6, 1ull << (index & 63));
    __threadfence();
    atomicAdd(count, 1);
  }

  // Whether this call took `index` out. A thread that had lowered the number for it finds nothing, and raises it again.
  __device__ bool remove(u32 index) {
    const u64 bit = 1ull << (index & 63);
    if ((removeBits(index >> 6, bit) & bit) == 0) return false;
    atomicSub(count, 1);
    return true;
  }

  // The number of members if it is at least `wanted`, which are then promised to the caller; else 0.
  __device__ u32 reserve(u32 wanted) {
    const i32 before = atomicSub(count, static_cast<i32>(wanted));
    if (before >= static_cast<i32>(wanted)) return static_cast<u32>(before);
    atomicAdd(count, static_cast<i32>(wanted));
    return 0;
  }

  // Takes out a member after `reserve`, preferably `start`. Returns NONE, and gives the promise back, if others were
  // faster. It searches below `most`.
  __device__ u32 find(u32 start, u32 most) {
    u32 word = start >> 6;
    u32 bit = start & 63;
    if (word >= wordCount) word = 0;
    for (u32 tries = 0; tries < TRIES; tries++) {
      const u64 mask = 1ull << bit;
      u64 members = removeBits(word, mask);
      if ((members & mask) != 0) return word << 6 | bit;
      // Threads that began at the same place go on to different ones.
      const u32 random = spread(tries);
      if (tries % 4 == 3) members = 0;
      u32 from = tries % 4 == 3 ? random % ((most >> 6) + 1) : word + 1;
      while (members == 0 && tries++ < TRIES) {
        word = wordWithMembers(from < wordCount ? from : 0);
        if (word == NONE) break;
        members = load(&words[word]);
        if (members == 0) tidy(word);
        from = word + 1;
      }
      if (members == 0) break;
      bit = bitFrom(members, random);
    }
    atomicAdd(count, 1);
    return NONE;
  }

  // Sets bits of a word; returns its former value.
  __device__ u64 insertBits(u32 word, u64 bits) {
    const u64 before = atomicOr(&words[word], bits);
    if (before == 0) atomicOr(&summary[word >> 6], 1ull << (word & 63));
    return before;
  }

  // Clears bits of a word; returns its former value.
  __device__ u64 removeBits(u32 word, u64 bits) {
    const u64 before = atomicAnd(&words[word], ~bits);
    if ((before & bits) != 0 && (before & ~bits) == 0) tidy(word);
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

struct alignas(32) PaddedCount {
  i32 value;
};

// Each group of multiprocessors counts apart; the host adds the counts up.
struct alignas(128) Tallies {
  u64 allocations[CLASSES + 1];
  u64 frees[CLASSES + 1];
  u64 failures;
};

// malloc and free for kernels. Blocks of up to 8 KiB have 32 classes and lie in superblocks of 64 KiB, each of one
// class. Larger blocks are runs of neighbouring superblocks. The superblocks' words and the sets follow this
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
  u64 runTaken;     // superblocks given to runs, and given back
  u64 runReturned;
  Tallies tallies[STRIPES];
  PaddedCount counts[CLASSES + 1];  // of members in the sets: those with room of each class, and the idle ones
  u32 slots[CLASSES][SLOTS];

  // At least `bytes` bytes at a multiple of 16 (of the size, if that is a power of two of up to 8 KiB; of 64 KiB, if
  // it is more), or nullptr, which is counted. The threads of a warp that want the same class share the work.
  __device__ void *allocate(u64 bytes) {
    if (bytes == 0 || bytes > LARGEST_BLOCK) return allocateRun(bytes);
    const u32 active = __activemask();
    const u32 sizeClass = classOf(static_cast<u32>(bytes));
    void *result = nullptr;
    bool waiting = true;
    for (u32 turn = 0; turn < TRIES && __any_sync(active, waiting); turn++) {
      // Of the same heap, too: heaps are further apart than there are classes.
      const u32 peers = __match_any_sync(active, reinterpret_cast<u64>(this) + (waiting ? sizeClass : CLASSES));
      const u32 leader = lowestLane(peers);
      const u32 rank = rankAmong(peers);
      Grant grant = {0, 0, 0};
      if (waiting && rank == 0) grant = obtain(sizeClass, __popc(peers));
      grant.count = __shfl_sync(active, grant.count, leader);
      grant.superblock = __shfl_sync(active, grant.superblock, leader);
      grant.ticket = __shfl_sync(active, grant.ticket, leader);
      if (!waiting) continue;
      if (rank < grant.count) result = takeBlock(grant.superblock, sizeClass, grant.ticket + rank);
      if (rank < grant.count || grant.count == 0) waiting = false;
    }
    if (result == nullptr) countFailures();
    return result;
  }

  // Gives back a block that `allocate` returned; nullptr does nothing. A pointer that is no block in use is counted
  // and ignored.
  __device__ void free(void *block) {
    if (block == nullptr) return;
    const u64 offset = reinterpret_cast<u64>(block) - base;
    const u32 superblock = static_cast<u32>(offset >> SUPERBLOCK_SHIFT);
    const u32 within = static_cast<u32>(offset) & (SUPERBLOCK_BYTES - 1);
    if (offset >> SUPERBLOCK_SHIFT >= reserved) return refuseFree(&invalidFrees);
    const u64 word = load(&words()[superblock]);
    if (stateOf(word) != SMALL) return freeRun(superblock, within);
    const u32 sizeClass = sizeClassOf(word);
    const u32 index = within / bytesOfClass(sizeClass);
    if (index * bytesOfClass(sizeClass) != within || index >= capacityOfClass(sizeClass)) return refuseFree(&invalidFrees);
    fence();
    const u32 bit = 1u << (index & 31);
    const u32 before = atomicAnd(&bitmap(superblock)[index >> 5], ~bit);
    if ((before & bit) == 0) return refuseFree(&doubleFrees);
    const u32 active = __activemask();
    // By its address, since lanes may free into different heaps.
    const u32 peers = __match_any_sync(active, reinterpret_cast<u64>(block) >> SUPERBLOCK_SHIFT);
    if (rankAmong(peers) != 0) return;
    // Until the count is raised the superblock keeps its class. A late second free does not know the class.
    const u32 sizeClassNow = raise(superblock, __popc(peers));
    atomicAdd(&tally().frees[sizeClassNow], static_cast<u64>(__popc(peers)));
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

  __device__ u64 *words() { return reinterpret_cast<u64 *>(this + 1); }
  __device__ u32 *bitmap(u32 superblock) {
    return reinterpret_cast<u32 *>(base - (static_cast<u64>(superblock + 1) << BITMAP_SHIFT));
  }
  __device__ SuperblockSet set(u32 index) {
    const u32 wordCount = (reserved + 63) >> 6;
    const u32 summaryCount = (wordCount + 63) >> 6;
    u64 *start = words() + reserved + static_cast<u64>(index) * (wordCount + summaryCount);
    return {&counts[index].value, start, start + wordCount, wordCount};
  }
  __device__ Tallies &tally() { return tallies[multiprocessor() % STRIPES]; }

  // Promises up to `wanted` blocks of a class; 0 if the heap is full.
  __device__ Grant obtain(u32 sizeClass, u32 wanted) {
    const u32 home = multiprocessor();
    Grant grant = {0, 0, 0};
    u32 patience = PATIENCE;
    u32 passed = 0;
    for (u32 tries = 0; tries <= 2 * slotMask + TRIES && grant.count == 0; tries++) {
      const u32 slot = (home + tries) & slotMask;
      u32 *const cell = &slots[sizeClass][slot];
      const u32 current = load(cell);
      if (current == BUSY) {
        if (--patience == 0 && mayRefill(sizeClass)) grant = refill(sizeClass, NO_SLOT, wanted);
        else __nanosleep(200);
        continue;
      }
      if (current != EMPTY && (tries == 0 || freeBlocksOf(load(&words()[current])) > 0)) {
        grant = reserve(current, sizeClass, wanted);
        if (grant.count != 0) break;
      }
      if (!mayRefill(sizeClass)) {
        if (++passed <= slotMask) continue;
        if (!hasRoom(sizeClass, tries)) break;
        passed = 0;
        __nanosleep(200);
        continue;
      }
      if (atomicCAS(cell, current, BUSY) != current) continue;
      if (current != EMPTY) detach(current, retagged(BIAS, smallTag(sizeClass, ATTACHED, slot)));
      grant = refill(sizeClass, slot, wanted);
      __threadfence();
      atomicExch(cell, grant.count == 0 ? EMPTY : grant.superblock);
    }
    if (grant.count != 0) {
      fence();
      atomicAdd(&tally().allocations[sizeClass], static_cast<u64>(grant.count));
    }
    return grant;
  }

  __device__ bool mayRefill(u32 sizeClass) {
    const i32 listed = load(&counts[sizeClass].value);
    const i32 left = load(&counts[CLASSES].value);
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
      const u64 word = load(&words()[at]);
      if (stateOf(word) == RUN) runEnd = at + runLengthOf(word);
      else if (stateOf(word) == SMALL) {
        if (sizeClassOf(word) == sizeClass && freeBlocksOf(word) > 0) return true;
        runEnd = at;
      } else if (at >= runEnd) return true;
    }
    return false;
  }

  // Lowers the count of a superblock, whose state may have changed.
  __device__ Grant reserve(u32 superblock, u32 sizeClass, u32 wanted) {
    const u64 before = atomicAdd(&words()[superblock], 0 - static_cast<u64>(wanted));
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
    const bool idleFirst = slot != NO_SLOT && load(&counts[CLASSES].value) > static_cast<i32>(load(&limit) / 2);
    Grant grant = idleFirst ? refillWithIdle(sizeClass, slot, wanted) : refillWithListed(sizeClass, slot, wanted);
    if (grant.count == 0) {
      grant = idleFirst ? refillWithListed(sizeClass, slot, wanted) : refillWithIdle(sizeClass, slot, wanted);
    }
    return grant;
  }

  __device__ Grant refillWithListed(u32 sizeClass, u32 slot, u32 wanted) {
    SuperblockSet listed = set(sizeClass);
    const u32 tag = placeTag(sizeClass, slot);
    for (u32 tries = 0; tries < TRIES && load(listed.count) > 0 && listed.reserve(1) != 0; tries++) {
      const u32 most = load(&highest);
      const u32 found = listed.find(spread(tries) % (most + 1), most);
      if (found == SuperblockSet::NONE) break;
      const u64 change = static_cast<u64>(tag - smallTag(sizeClass, LISTED, 0)) << 32;
      const u64 before = atomicAdd(&words()[found], change - wanted);
      const Grant grant = settleGrant(found, sizeClass, freeBlocksOf(before), wanted);
      if (grant.count != 0) {
        if (slot == NO_SLOT) listed.insert(found);
        return grant;
      }
      detach(found, retagged(BIAS, tag));
    }
    return {0, 0, 0};
  }

  __device__ Grant refillWithIdle(u32 sizeClass, u32 slot, u32 wanted) {
    const u32 total = load(&limit);
    const u32 left = idle().reserve(1);
    if (left == 0) return {0, 0, 0};
    const u32 used = total > left ? total - left : 0;  // the limit may be about to be raised
    const u32 found = idle().find(used, used + 4096);
    if (found == SuperblockSet::NONE) return {0, 0, 0};
    noteUse(used + 1, found + 1);
    const u32 capacity = capacityOfClass(sizeClass);
    const u32 count = min(wanted, capacity);
    atomicAdd(&words()[found], (static_cast<u64>(placeTag(sizeClass, slot)) << 32) + (capacity - count));
    if (slot == NO_SLOT) {
      fence();  // `obtain` has one before it fills a slot
      set(sizeClass).insert(found);
    }
    return {found, 0, count};
  }

  __device__ void noteUse(u32 used, u32 end) {
    if (used <= reserved) atomicMax(&peak, used);
    atomicMax(&highest, end);
  }

  __device__ static u32 placeTag(u32 sizeClass, u32 slot) {
    return slot == NO_SLOT ? smallTag(sizeClass, LISTED, 0) : smallTag(sizeClass, ATTACHED, slot);
  }

  // A promised block: the first from `index` on that is not in use.
  __device__ void *takeBlock(u32 superblock, u32 sizeClass, u32 index) {
    u32 *const map = bitmap(superblock);
    const u32 mapWords = (capacityOfClass(sizeClass) + 31) >> 5;
    const u32 lastPlaces = ~0u >> (32 * mapWords - capacityOfClass(sizeClass));  // the last word has bits of no block
    u32 word = index >> 5;
    u32 bit = index & 31;
    for (u32 tries = 0; tries < 4 * TRIES; tries++) {
      const u32 taken = atomicOr(&map[word], 1u << bit);
      if ((taken >> bit & 1) == 0) {
        const u64 start = base + (static_cast<u64>(superblock) << SUPERBLOCK_SHIFT);
        return reinterpret_cast<void *>(start + (word << 5 | bit) * bytesOfClass(sizeClass));
      }
      u32 clear = ~taken & (word + 1 == mapWords ? lastPlaces : ~0u);
      for (u32 step = 0; clear == 0 && step < mapWords; step++) {
        word = word + 1 == mapWords ? 0 : word + 1;
        clear = ~load(&map[word]) & (word + 1 == mapWords ? lastPlaces : ~0u);
      }
      // Neighbours in the warp look for different bits.
      const u32 from = (bit + lane()) & 31;
      bit = clear == 0 ? bit : (__ffs(__funnelshift_r(clear, clear, from)) - 1 + from) & 31;
    }
    raise(superblock, 1);
    atomicAdd(&tally().allocations[sizeClass], ~0ull);
    return nullptr;
  }

  // More blocks of a superblock are free. The thread that raises the count from 0 lists a loose superblock, and the
  // thread that frees its last block gives it back. Returns the class that it had.
  __device__ u32 raise(u32 superblock, u32 count) {
    const u64 before = atomicAdd(&words()[superblock], static_cast<u64>(count));
    const u64 now = before + count;
    const bool listable = placeOf(now) == LOOSE && freeBlocksOf(before) <= 0 && freeBlocksOf(now) > 0;
    if (stateOf(now) == SMALL && (listable || isFull(now))) settle(superblock, now);
    return sizeClassOf(now);
  }

  __device__ static bool isFull(u64 word) {
    return freeBlocksOf(word) == static_cast<i32>(capacityOfClass(sizeClassOf(word)));
  }

  // A thread that cannot get the superblock leaves the work to its holder, which looks again before it leaves.
  __device__ void settle(u32 superblock, u64 now) {
    u64 *const word = &words()[superblock];
    while (stateOf(now) == SMALL) {
      const u32 sizeClass = sizeClassOf(now);
      if (isFull(now)) {
        if (placeOf(now) == LOOSE) {
          const u64 seen = atomicCAS(word, now, BIAS);
          if (seen == now) return release(superblock);
          now = seen;
          continue;
        }
        u32 *const cell = &slots[sizeClass][slotOf(now)];
        const bool listed = placeOf(now) == LISTED;
        if (listed ? !set(sizeClass).remove(superblock) : atomicCAS(cell, superblock, BUSY) != superblock) return;
        const bool released = atomicCAS(word, now, BIAS) == now;
        if (!listed) {
          __threadfence();
          atomicExch(cell, released ? EMPTY : superblock);
        } else if (!released) set(sizeClass).insert(superblock);
        if (released) return release(superblock);
      } else if (placeOf(now) == LOOSE && freeBlocksOf(now) > 0) {
        const u64 seen = atomicCAS(word, now, retagged(now, smallTag(sizeClass, LISTED, 0)));
        if (seen != now) {
          now = seen;
          continue;
        }
        set(sizeClass).insert(superblock);
      } else return;
      __threadfence();
      now = load(word);
      if (!isFull(now)) return;
    }
  }

  // Takes a superblock out of the slot that the caller keeps busy, to the set that it belongs to. `now` is a guess at
  // its word.
  __device__ void detach(u32 superblock, u64 now) {
    u64 *const word = &words()[superblock];
    for (;;) {
      const u32 sizeClass = sizeClassOf(now);
      const bool room = freeBlocksOf(now) > 0;
      const u64 next = isFull(now) ? BIAS : retagged(now, smallTag(sizeClass, room ? LISTED : LOOSE, 0));
      const u64 seen = atomicCAS(word, now, next);
      if (seen != now) {
        now = seen;
        continue;
      }
      if (isFull(now)) return release(superblock);
      if (!room) return;
      set(sizeClass).insert(superblock);
      __threadfence();
      now = load(word);
      if (stateOf(now) == SMALL && isFull(now)) settle(superblock, now);
      return;
    }
  }

  __device__ void release(u32 superblock) {
    __threadfence();
    idle().insert(superblock);
  }

  // Neighbouring superblocks, for one thread.
  __device__ void *allocateRun(u64 bytes) {
    const u64 length = (bytes + SUPERBLOCK_BYTES - 1) >> SUPERBLOCK_SHIFT;
    const bool valid = bytes != 0 && bytes <= static_cast<u64>(reserved) << SUPERBLOCK_SHIFT;
    const u32 total = load(&limit);
    const bool present = valid && load(&counts[CLASSES].value) >= static_cast<i32>(length);
    const u32 left = present ? idle().reserve(static_cast<u32>(length)) : 0;
    if (left != 0) {
      const u32 start = claimRun(total > left ? total - left : 0, static_cast<u32>(length), total);
      if (start != SuperblockSet::NONE) {
        noteUse(total - left + static_cast<u32>(length), start + static_cast<u32>(length));
        atomicAdd(&words()[start], static_cast<u64>(RUN << 30 | static_cast<u32>(length)) << 32);
        fence();  // whoever gets the address may free it
        atomicAdd(&tally().allocations[RUNS], 1ull);
        atomicAdd(&runTaken, length);
        return reinterpret_cast<void *>(base + (static_cast<u64>(start) << SUPERBLOCK_SHIFT));
      }
      atomicAdd(idle().count, static_cast<i32>(length));
    }
    countFailures();
    return nullptr;
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
        all.insertBits((at + claimed) >> 6, before & mask);
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

  __device__ void freeRun(u32 superblock, u32 within) {
    u64 *const word = &words()[superblock];
    fence();
    u64 now = load(word);
    while (stateOf(now) == RUN && within == 0) {
      const u64 seen = atomicCAS(word, now, retagged(now, 0));
      if (seen == now) {
        const u32 length = runLengthOf(now);
        insertIdle(superblock, length);
        __threadfence();
        atomicAdd(idle().count, static_cast<i32>(length));
        atomicAdd(&tally().frees[RUNS], 1ull);
        atomicAdd(&runReturned, static_cast<u64>(length));
        return;
      }
      now = seen;
    }
    // An idle superblock has no blocks. Any other belongs to a run that begins before it.
    const bool idleNow = load(&idle().words[superblock >> 6]) >> (superblock & 63) & 1;
    refuseFree(idleNow && within % 16 == 0 ? &doubleFrees : &invalidFrees);
  }

  __device__ void countFailures() {
    const u32 lanes = lanesOf(this);
    if (lane() == lowestLane(lanes)) atomicAdd(&tally().failures, static_cast<u64>(__popc(lanes)));
  }

  __device__ void refuseFree(u64 *counter) {
    atomicAdd(counter, 1ull);
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
static_assert(__builtin_offsetof(DeviceHeap, runTaken) == 48, "");
static_assert(__builtin_offsetof(DeviceHeap, runReturned) == 56, "");
static_assert(__builtin_offsetof(DeviceHeap, tallies) == 128, "");
static_assert(__builtin_offsetof(DeviceHeap, counts) == 10368, "");
static_assert(__builtin_offsetof(DeviceHeap, slots) == 11424, "");
static_assert(sizeof(DeviceHeap) == 27904, "");
static_assert(__builtin_offsetof(Tallies, allocations) == 0, "");
static_assert(__builtin_offsetof(Tallies, frees) == 264, "");
static_assert(__builtin_offsetof(Tallies, failures) == 528, "");
static_assert(sizeof(Tallies) == 640, "");
static_assert(sizeof(PaddedCount) == 32, "");
#endif

}  // namespace cuda_mempool

#endif
