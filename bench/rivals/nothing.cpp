// An allocator that does nothing, so its figures are the cost of the loop and the clock of rival.hpp.

#include "rival.hpp"

class Nothing {
 public:
  Nothing(int, size_t) {}

  [[gnu::noinline]] void *allocate(size_t bytes, size_t) {
    asm volatile("");
    return reinterpret_cast<void *>(bytes);
  }

  [[gnu::noinline]] void release(void *, size_t) { asm volatile(""); }

  void synchronize() {}
  double peakReservedBytes() { return 0; }
  void atPeakLive() {}
};

int main(int count, char **arguments) { return rivalMain<Nothing>(count, arguments); }
