// cudaMallocAsync and cudaFreeAsync, from the default pool with a release threshold that keeps all memory.

#include "cuda.hpp"

class CudaMallocAsync : public CudaDevice {
 public:
  CudaMallocAsync(int device, size_t streams) : CudaDevice(device, streams) {
    check(cudaDeviceGetDefaultMemPool(&pool, device), "cudaDeviceGetDefaultMemPool");
    uint64_t threshold = UINT64_MAX;
    check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold), "cudaMemPoolSetAttribute");
  }

  void *allocate(size_t bytes, size_t stream) {
    void *pointer = nullptr;
    check(cudaMallocAsync(&pointer, bytes, streams[stream]), "cudaMallocAsync", bytes);
    return pointer;
  }

  void release(void *pointer, size_t stream) { check(cudaFreeAsync(pointer, streams[stream]), "cudaFreeAsync"); }

  double peakReservedBytes() {
    uint64_t bytes = 0;
    check(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemHigh, &bytes), "cudaMemPoolGetAttribute");
    return static_cast<double>(bytes);
  }

  void atPeakLive() {}

 private:
  cudaMemPool_t pool = nullptr;
};

int main(int count, char **arguments) { return rivalMain<CudaMallocAsync>(count, arguments); }
