// Counts the calls that take, map or give back memory, that order streams, or that ask for captures. This file is
// linked into each rival that uses CUDA.
//
// The executable defines these functions of the CUDA runtime, so that libraries that it loads call them, too. Each one
// counts, and calls the runtime's function of that name; the runtime must be a shared library. A library that asks the
// runtime for functions of the driver gets counting ones.

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <string>

#include "rival.hpp"

/** Defines a function that counts its calls, and passes them on to the next library's function of that name. */
#define COUNTED(name, parameters, arguments)                                                   \
  extern "C" cudaError_t name parameters {                                                     \
    static const auto next = reinterpret_cast<cudaError_t(*) parameters>(dlsym(RTLD_NEXT, #name)); \
    static uint64_t &calls = driverCalls()[#name];                                             \
    calls++;                                                                                   \
    return next arguments;                                                                     \
  }

COUNTED(cudaMalloc, (void **pointer, size_t bytes), (pointer, bytes))
COUNTED(cudaFree, (void *pointer), (pointer))
COUNTED(cudaMallocAsync, (void **pointer, size_t bytes, cudaStream_t stream), (pointer, bytes, stream))
COUNTED(cudaFreeAsync, (void *pointer, cudaStream_t stream), (pointer, stream))
COUNTED(cudaEventCreateWithFlags, (cudaEvent_t *event, unsigned flags), (event, flags))
COUNTED(cudaEventRecord, (cudaEvent_t event, cudaStream_t stream), (event, stream))
COUNTED(cudaEventQuery, (cudaEvent_t event), (event))
COUNTED(cudaEventDestroy, (cudaEvent_t event), (event))
COUNTED(cudaStreamWaitEvent, (cudaStream_t stream, cudaEvent_t event, unsigned flags), (stream, event, flags))
COUNTED(cudaStreamIsCapturing, (cudaStream_t stream, cudaStreamCaptureStatus *status), (stream, status))
COUNTED(cudaThreadExchangeStreamCaptureMode, (cudaStreamCaptureMode *mode), (mode))

/** Makes functions of the driver's types that count their calls. */
template <class Function>
struct CountedDriver;

template <class... Parameters>
struct CountedDriver<CUresult(Parameters...)> {
  /** `Tag` gives each function of the driver its own counter. */
  template <int Tag>
  static void *counting(void *function, const char *name) {
    static CUresult (*next)(Parameters...) = reinterpret_cast<CUresult (*)(Parameters...)>(function);
    static uint64_t &calls = driverCalls()[name];
    CUresult (*counted)(Parameters...) = [](Parameters... arguments) {
      calls++;
      return next(arguments...);
    };
    return reinterpret_cast<void *>(counted);
  }
};

static void *countedDriver(const std::string &symbol, void *function) {
#define COUNT_DRIVER(name) \
  if (symbol == #name) return CountedDriver<decltype(name)>::counting<__LINE__>(function, #name);
  // clang-format off
  COUNT_DRIVER(cuMemAddressReserve)
  COUNT_DRIVER(cuMemAddressFree)
  COUNT_DRIVER(cuMemCreate)
  COUNT_DRIVER(cuMemRelease)
  COUNT_DRIVER(cuMemMap)
  COUNT_DRIVER(cuMemUnmap)
  COUNT_DRIVER(cuMemSetAccess)
  // clang-format on
#undef COUNT_DRIVER
  return function;
}

/** Defines a function that looks up a function of the driver, and gives a counting one instead. */
#define LOOKUP(name, parameters, arguments)                                                        \
  extern "C" cudaError_t name parameters {                                                         \
    static const auto next = reinterpret_cast<cudaError_t(*) parameters>(dlsym(RTLD_NEXT, #name)); \
    const cudaError_t result = next arguments;                                                     \
    if (result == cudaSuccess && *function != nullptr) *function = countedDriver(symbol, *function); \
    return result;                                                                                 \
  }

LOOKUP(cudaGetDriverEntryPointByVersion,
       (const char *symbol, void **function, unsigned version, unsigned long long flags,
        cudaDriverEntryPointQueryResult *status),
       (symbol, function, version, flags, status))
LOOKUP(cudaGetDriverEntryPoint,
       (const char *symbol, void **function, unsigned long long flags, cudaDriverEntryPointQueryResult *status),
       (symbol, function, flags, status))
