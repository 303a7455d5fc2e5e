// Opens NVML, NVIDIA's management library, which comes with the driver; nvml.ts uses it. It is opened only for an
// out-of-memory error and for `cuda-mempool info`.

import { openFirst } from './koffi.js'

/** Devices are numbers. NVML writes handles, counts and modes to arrays of one element. */
type NvmlArgument = number | string | Uint8Array | null | number[]

export type NvmlFunction = (...args: NvmlArgument[]) => number

/** Prototypes of nvml.h, with devices as numbers, and with koffi's marks for out-parameters. */
export const NVML_PROTOTYPES = {
  nvmlInit_v2: 'int nvmlInit_v2()',
  nvmlShutdown: 'int nvmlShutdown()',
  nvmlDeviceGetHandleByUUID: 'int nvmlDeviceGetHandleByUUID(const char *uuid, _Out_ uint64_t *device)',
  nvmlDeviceGetComputeRunningProcesses_v3:
    'int nvmlDeviceGetComputeRunningProcesses_v3(uint64_t device, _Inout_ unsigned int *infoCount, void *infos)',
  nvmlDeviceGetGraphicsRunningProcesses_v3:
    'int nvmlDeviceGetGraphicsRunningProcesses_v3(uint64_t device, _Inout_ unsigned int *infoCount, void *infos)',
  nvmlDeviceGetPersistenceMode: 'int nvmlDeviceGetPersistenceMode(uint64_t device, _Out_ int *mode)',
}

export type NvmlFunctions = Readonly<Record<keyof typeof NVML_PROTOTYPES, NvmlFunction>>

const NVML_PATHS = ['libnvidia-ml.so.1', '/usr/lib/wsl/lib/libnvidia-ml.so.1']

/** Opens the first usable library of `paths`. Throws NoLibraryError if all are missing, or lack a function. */
export function openNvmlLibrary(paths: readonly string[] = NVML_PATHS): NvmlFunctions {
  return openFirst(
    paths,
    library =>
      Object.fromEntries(
        Object.entries(NVML_PROTOTYPES).map(([name, prototype]) => [name, library.func(prototype)]),
      ) as unknown as NvmlFunctions,
    tried => `no NVML, which tells the processes on a GPU: none of ${tried} could be used; it comes with the driver`,
  )
}
