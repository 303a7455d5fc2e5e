// Errors, and the device with its streams, for the rivals that use CUDA.

#pragma once

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "rival.hpp"

inline void check(cudaError_t result, const char *call, size_t bytes = 0) {
  if (result == cudaSuccess) return;
  const std::string size = bytes == 0 ? "" : " of " + std::to_string(bytes) + " bytes";
  throw std::runtime_error(call + size + ": " + cudaGetErrorString(result));
}

/** The chosen device with its context, and as many streams as the operations need. */
class CudaDevice {
 public:
  CudaDevice(int device, size_t count) : streams(count) {
    check(cudaSetDevice(device), "cudaSetDevice");
    for (cudaStream_t &stream : streams) {
      check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    }
    synchronize();
  }

  void synchronize() { check(cudaDeviceSynchronize(), "cudaDeviceSynchronize"); }

  static size_t freeBytes() {
    size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    return free;
  }

  std::vector<cudaStream_t> streams;
};
