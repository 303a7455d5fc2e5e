// Numbers of nccl.h, as the calls of nccl.ts take and give them.

/** ncclResult_t */
export const NCCL_RESULT = {
  ncclSuccess: 0,
  ncclUnhandledCudaError: 1,
  ncclSystemError: 2,
  ncclInternalError: 3,
  ncclInvalidArgument: 4,
  ncclInvalidUsage: 5,
  ncclRemoteError: 6,
  ncclInProgress: 7,
  ncclTimeout: 8,
} as const

/** ncclDataType_t, by the name of an element type, with the bytes of an element */
export const NCCL_TYPES = {
  int8: { type: 0, bytes: 1 },
  uint8: { type: 1, bytes: 1 },
  int32: { type: 2, bytes: 4 },
  uint32: { type: 3, bytes: 4 },
  int64: { type: 4, bytes: 8 },
  uint64: { type: 5, bytes: 8 },
  float16: { type: 6, bytes: 2 },
  float32: { type: 7, bytes: 4 },
  float64: { type: 8, bytes: 8 },
  bfloat16: { type: 9, bytes: 2 },
} as const

/** The element types that NCCL computes with. */
export type NcclType = keyof typeof NCCL_TYPES

/** ncclRedOp_t */
export const NCCL_OPS = { sum: 0, prod: 1, max: 2, min: 3, avg: 4 } as const

/** How a reduction combines the elements of the ranks. */
export type NcclOp = keyof typeof NCCL_OPS

/** Bytes of an ncclUniqueId. */
export const UNIQUE_ID_BYTES = 128
/** NCCL_WIN_COLL_SYMMETRIC: all ranks use the window at the same offsets. */
export const WINDOW_SYMMETRIC = 1
/** NCCL_SUSPEND_MEM: the memory that NCCL itself holds goes back to the device. */
export const SUSPEND_MEMORY = 1
/** ncclCommMemStat_t: all device memory that the communicator holds */
export const STAT_TOTAL = 3

/** The least version of NCCL that is used; ncclCommRegister came with it. */
export const LEAST_VERSION = 21900

/** The least version that has a function; other functions are in all versions from LEAST_VERSION on. */
export const NCCL_SINCE = {
  ncclCommWindowRegister: 22700,
  ncclCommWindowDeregister: 22700,
  ncclAlltoAll: 22800,
  ncclCommSuspend: 22907,
  ncclCommResume: 22907,
  ncclCommMemStats: 22907,
} as const

/** A version of NCCL for people, such as 2.28.9 for 22809. */
export function versionText(version: number): string {
  return `${Math.floor(version / 10000)}.${Math.floor(version / 100) % 100}.${version % 100}`
}
