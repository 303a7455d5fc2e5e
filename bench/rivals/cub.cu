// CUB's CachingDeviceAllocator. By default it caches blocks up to 2 MiB, and 6 MiB in all. Here it has bins of powers
// of two from 256 bytes to 2 GiB, and no limit.

#include <cub/util_allocator.cuh>

#include "cuda.hpp"

class Cub : public CudaDevice {
 public:
  Cub(int device, size_t streams) : CudaDevice(device, streams), device(device), allocator(2, 8, 31) {}

  void *allocate(size_t bytes, size_t stream) {
    void *pointer = nullptr;
    check(allocator.DeviceAllocate(device, &pointer, bytes, streams[stream]), "DeviceAllocate", bytes);
    if (mallocs != seen) {
      seen = mallocs;
      const auto &cached = allocator.cached_bytes[device];
      most = std::max(most, cached.free + cached.live);
    }
    return pointer;
  }

  void release(void *pointer, size_t) { check(allocator.DeviceFree(device, pointer), "DeviceFree"); }

  double peakReservedBytes() { return static_cast<double>(most); }

  void atPeakLive() {}

 private:
  int device;
  cub::CachingDeviceAllocator allocator;
  /** cudaMalloc's calls: only they can raise the peak */
  const uint64_t &mallocs = driverCalls()["cudaMalloc"];
  uint64_t seen = 0;
  size_t most = 0;
};

int main(int count, char **arguments) { return rivalMain<Cub>(count, arguments); }
