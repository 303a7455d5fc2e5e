// cudaMalloc and cudaFree. The driver does not tell what it reserves: it is the device's free memory before the first
// allocation, less what is free when the most is live.

#include "cuda.hpp"

class CudaMalloc : public CudaDevice {
 public:
  CudaMalloc(int device, size_t streams) : CudaDevice(device, streams), freeAtFirst(freeBytes()) {}

  void *allocate(size_t bytes, size_t) {
    void *pointer = nullptr;
    check(cudaMalloc(&pointer, bytes), "cudaMalloc", bytes);
    return pointer;
  }

  void release(void *pointer, size_t) { check(cudaFree(pointer), "cudaFree"); }

  double peakReservedBytes() { return static_cast<double>(most); }

  void atPeakLive() { most = std::max(most, freeAtFirst - std::min(freeAtFirst, freeBytes())); }

 private:
  size_t freeAtFirst;
  size_t most = 0;
};

int main(int count, char **arguments) { return rivalMain<CudaMalloc>(count, arguments); }
