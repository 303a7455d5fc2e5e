// A stand-in for libnccl in C, for tests of the binding. Its functions have the types of nccl.h, and keep their
// arguments.

import { execFileSync, spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestContext } from 'node:test'

/** Why the stand-in cannot be made here; false when it can. */
export const noCompiler = spawnSync('cc', ['--version']).error !== undefined && 'no C compiler'

/** Values that the stand-in writes, and the id that it takes. */
export const STAND_IN = {
  comm: 0x7f12_3456_7890,
  laterComm: 0x7f12_3456_7abc,
  handle: 0x7f00_dead_beef,
  window: 0x1f_ffff_ffff_ffff,
  bytes: 0x12_3456_7890,
  id: Uint8Array.from({ length: 128 }, (_, index) => (7 * index + 200) % 256),
} as const

/** The path of a new stand-in that has the functions of a version of NCCL. */
export function standIn(t: TestContext, version: number): string {
  const folder = mkdtempSync(join(tmpdir(), 'nccl-'))
  t.after(() => rmSync(folder, { recursive: true }))
  const [source, library] = [join(folder, 'nccl.c'), join(folder, 'libnccl.so.2')]
  writeFileSync(source, IN_C)
  execFileSync('cc', ['-shared', '-fPIC', '-pthread', `-DVERSION=${version}`, '-o', library, source])
  return library
}

/** The arguments of the latest call of the stand-in. */
export function argumentsOf(library: string): number[] {
  const koffi = createRequire(import.meta.url)('koffi') as typeof import('koffi')
  const argument = koffi.load(library).func('uint64_t argument(int index)')
  return Array.from({ length: argument(-1) }, (_, index) => Number(argument(index)))
}

const IN_C = `
#include <limits.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <string.h>
typedef struct { char internal[128]; } ncclUniqueId;
typedef struct {
  size_t size; unsigned magic, version;
  int blocking, cgaClusterSize, minCTAs, maxCTAs; const char *netName; int splitShare;
} config;
typedef void *ptr;
typedef enum { success, unhandled, systemError, internalError, invalidArgument, invalidUsage, remote, inProgress } result;

static uint64_t kept[16];
static int count;
uint64_t argument(int index) { return index < 0 ? count : kept[index]; }
#define A(x) (kept[count++] = (uint64_t)(x))
static void fresh(void) { count = 0; }

result ncclGetVersion(int *version) { *version = VERSION; return success; }
const char *ncclGetErrorString(result code) { return code == remote ? "remote process exited" : "no error"; }
const char *ncclGetLastError(ptr comm) { return comm == NULL ? NULL : "a warning"; }
result ncclGetUniqueId(ncclUniqueId *id) {
  for (int i = 0; i < 128; i++) id->internal[i] = (char)(7 * i + 200);
  return success;
}

static ptr *later;
static sem_t turn;
static pthread_t writer;
static void *write_later(void *unused) {
  (void)unused;
  sem_wait(&turn);
  __atomic_store_n(later, (ptr)${STAND_IN.laterComm}ull, __ATOMIC_RELEASE);
  return NULL;
}
/* Writes the communicator at once, and once more from a thread, which ncclCommFinalize lets go on. */
result ncclCommInitRankConfig(ptr *comm, int ranks, ncclUniqueId id, int rank, config *c) {
  for (int i = 0; i < 128; i++) if (id.internal[i] != (char)(7 * i + 200)) return invalidArgument;
  if (c->size != 48 || sizeof *c != 48 || c->magic != 0xcafebeef || c->version != 21700) return invalidUsage;
  if (c->blocking != 0 || c->cgaClusterSize != INT_MIN || c->minCTAs != INT_MIN || c->maxCTAs != INT_MIN) return remote;
  if (c->netName != NULL || c->splitShare != INT_MIN || ((int *)c)[11] != INT_MIN) return systemError;
  fresh(); A(ranks); A(rank);
  *comm = (ptr)${STAND_IN.comm}ull;
  later = comm;
  sem_init(&turn, 0, 0);
  return pthread_create(&writer, NULL, write_later, NULL) == 0 ? inProgress : internalError;
}
result ncclCommFinalize(ptr comm) {
  fresh(); A(comm);
  sem_post(&turn);
  return pthread_join(writer, NULL) == 0 ? success : internalError;
}
result ncclCommGetAsyncError(ptr comm, result *state) { fresh(); A(comm); *state = inProgress; return success; }
result ncclCommSplit(ptr comm, int color, int key, ptr *split, config *c) {
  fresh(); A(comm); A(color); A(key); A(c->blocking);
  *split = (ptr)${STAND_IN.laterComm}ull;
  return inProgress;
}
result ncclCommDestroy(ptr comm) { fresh(); A(comm); return success; }
result ncclCommAbort(ptr comm) { fresh(); A(comm); return success; }
result ncclGroupStart(void) { fresh(); return success; }
result ncclGroupEnd(void) { fresh(); return inProgress; }

#define BUFFERS const void *send, void *receive, size_t n, int type
#define KEEP_BUFFERS fresh(); A(send); A(receive); A(n); A(type)
#define TO_STREAM ptr comm, ptr stream
#define KEEP_STREAM A(comm); A(stream); return success
result ncclAllReduce(BUFFERS, int op, TO_STREAM) { KEEP_BUFFERS; A(op); KEEP_STREAM; }
result ncclReduce(BUFFERS, int op, int root, TO_STREAM) { KEEP_BUFFERS; A(op); A(root); KEEP_STREAM; }
result ncclReduceScatter(BUFFERS, int op, TO_STREAM) { KEEP_BUFFERS; A(op); KEEP_STREAM; }
result ncclAllGather(BUFFERS, TO_STREAM) { KEEP_BUFFERS; KEEP_STREAM; }
result ncclBroadcast(BUFFERS, int root, TO_STREAM) { KEEP_BUFFERS; A(root); KEEP_STREAM; }
result ncclSend(const void *send, size_t n, int type, int peer, TO_STREAM) {
  fresh(); A(send); A(n); A(type); A(peer); KEEP_STREAM;
}
result ncclRecv(void *receive, size_t n, int type, int peer, TO_STREAM) {
  fresh(); A(receive); A(n); A(type); A(peer); KEEP_STREAM;
}
result ncclCommRegister(const ptr comm, void *buff, size_t size, void **handle) {
  fresh(); A(comm); A(buff); A(size);
  *handle = (ptr)${STAND_IN.handle}ull;
  return success;
}
result ncclCommDeregister(const ptr comm, void *handle) { fresh(); A(comm); A(handle); return success; }
#if VERSION >= 22700
result ncclCommWindowRegister(ptr comm, void *buff, size_t size, ptr *win, int flags) {
  fresh(); A(comm); A(buff); A(size); A(flags);
  *win = (ptr)${STAND_IN.window}ull;
  return inProgress;
}
result ncclCommWindowDeregister(ptr comm, ptr win) { fresh(); A(comm); A(win); return success; }
#endif
#if VERSION >= 22800
result ncclAlltoAll(BUFFERS, TO_STREAM) { KEEP_BUFFERS; KEEP_STREAM; }
#endif
#if VERSION >= 22907
result ncclCommSuspend(ptr comm, int flags) { fresh(); A(comm); A(flags); return success; }
result ncclCommResume(ptr comm) { fresh(); A(comm); return success; }
result ncclCommMemStats(ptr comm, int stat, uint64_t *value) {
  fresh(); A(comm); A(stat);
  *value = ${STAND_IN.bytes}ull;
  return success;
}
#endif
`
