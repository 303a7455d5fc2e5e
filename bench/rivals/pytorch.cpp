// PyTorch's caching allocator, called as its C++ operators call it. PYTORCH_CUDA_ALLOC_CONF chooses its kind.

#include <c10/cuda/CUDACachingAllocator.h>

#include "cuda.hpp"

namespace caching = c10::cuda::CUDACachingAllocator;

class PyTorch : public CudaDevice {
 public:
  PyTorch(int device, size_t streams) : CudaDevice(device, streams), device(device) { caching::init(device + 1); }

  void *allocate(size_t bytes, size_t stream) {
    return caching::raw_alloc_with_stream(bytes, streams[stream]);
  }

  void release(void *pointer, size_t) { caching::raw_delete(pointer); }

  double peakReservedBytes() {
    // The first statistic is the sum over small and large blocks.
    return static_cast<double>(caching::getDeviceStats(device).reserved_bytes[0].peak);
  }

  void atPeakLive() {}

 private:
  int device;
};

int main(int count, char **arguments) { return rivalMain<PyTorch>(count, arguments); }
