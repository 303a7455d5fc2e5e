// NVML without its library, and over a stand-in: lists of processes, refusals, and how often it is asked.

import assert from 'node:assert/strict'
import { execFileSync, spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { GiB } from '../base/bytes.js'
import { Nvml } from './nvml.js'
import { NVML_PROTOTYPES, type NvmlFunctions, openNvmlLibrary } from './nvml-library.js'

const UUID = '12345678-90ab-cdef-1234-567890abcdef'
const DEVICE = 0x7f12_3456_7890
const NOT_AVAILABLE = 2n ** 64n - 1n
/** nvmlReturn_t: uninitialised, invalid argument, not supported, no permission, not found, too small, lost, unknown */
const REFUSALS = [1, 2, 3, 4, 6, 7, 15, 999]

type Name = keyof NvmlFunctions
type Listed = readonly [pid: number, bytes: bigint]

/** A stand-in for NVML, which may refuse functions, and whose processes grow while they are listed. */
class FakeNvml {
  compute: Listed[] = []
  graphics: Listed[] = []
  /** a process that starts after each count of the others */
  starting: Listed | null = null
  kind = 'GPU'
  persistence = 1
  refusals: Partial<Record<Name, number>> = {}
  readonly calls: string[] = []
  private open = 0

  readonly functions = Object.fromEntries(
    (Object.keys(NVML_PROTOTYPES) as Name[]).map(name => [
      name,
      (...args: unknown[]) => {
        this.calls.push(name)
        return this.refusals[name] ?? this.answer(name, args)
      },
    ]),
  ) as unknown as NvmlFunctions

  private answer(name: Name, [first, second, third]: readonly unknown[]): number {
    const out = second as number[]
    if (name === 'nvmlInit_v2') this.open++
    else if (name === 'nvmlShutdown') this.open--
    else if (this.open !== 1) return 1
    else if (name === 'nvmlDeviceGetHandleByUUID') {
      if (first !== `${this.kind}-${UUID}`) return 6
      out[0] = DEVICE
    } else if (first !== DEVICE) return 2
    else if (name === 'nvmlDeviceGetPersistenceMode') out[0] = this.persistence
    else return this.list(name.includes('Compute') ? this.compute : this.graphics, out, third as Uint8Array | null)
    return 0
  }

  private list(processes: Listed[], count: number[], infos: Uint8Array | null): number {
    const isTooShort = count[0] < processes.length
    count[0] = processes.length
    if (this.starting !== null && processes.length > 0) for (let i = 0; i < 20; i++) processes.push(this.starting)
    if (isTooShort) return 7
    for (const [i, [pid, bytes]] of processes.slice(0, count[0]).entries()) {
      const view = new DataView(infos!.buffer, 24 * i, 24)
      view.setUint32(0, pid, true)
      view.setUint32(4, 0xffff_ffff, true) // padding
      view.setBigUint64(8, bytes, true)
    }
    return 0
  }
}

function setUp(changes: Partial<FakeNvml> = {}) {
  const fake = Object.assign(new FakeNvml(), changes)
  return { fake, ask: () => new Nvml(fake.functions).ask(UUID) }
}

describe('NVML', () => {
  it('lists the processes that compute or draw, each once, and tells the persistence mode', () => {
    const { fake, ask } = setUp({
      compute: [
        [4711, BigInt(40 * GiB)],
        [4712, NOT_AVAILABLE],
      ],
      graphics: [
        [4711, BigInt(40 * GiB)],
        [4000, 512n],
      ],
      persistence: 0,
    })
    assert.deepEqual(ask(), {
      processes: [
        { pid: 4711, bytes: 40 * GiB },
        { pid: 4712, bytes: null },
        { pid: 4000, bytes: 512 },
      ],
      persistenceMode: false,
    })
    assert.deepEqual([fake.calls.at(0), fake.calls.at(-1)], ['nvmlInit_v2', 'nvmlShutdown'])
    fake.persistence = 1
    assert.equal(ask()!.persistenceMode, true)
  })

  it('finds a MIG device by its own uuid', () => {
    const { ask } = setUp({ kind: 'MIG', compute: [[1, 256n]] })
    assert.deepEqual(ask()!.processes, [{ pid: 1, bytes: 256 }])
  })

  it('lists more processes than there were when it counted, unless they never stop growing', () => {
    const many = Array.from({ length: 300 }, (_, i): Listed => [1000 + i, BigInt(i)])
    assert.equal(setUp({ compute: [...many] }).ask()!.processes.length, 300)
    const { fake, ask } = setUp({ compute: [...many], starting: [9, 1n] })
    assert.deepEqual(ask()!.processes, [])
    assert.equal(fake.calls.filter(name => name === 'nvmlDeviceGetComputeRunningProcesses_v3').length, 5)
  })

  it('a refusal leaves out what it is about, and nothing throws', () => {
    for (const code of REFUSALS) {
      const refusing = (...names: Name[]) => {
        const refusals = Object.fromEntries(names.map(name => [name, code]))
        const { fake, ask } = setUp({ compute: [[1, 256n]], graphics: [[2, 512n]], refusals })
        return { answer: ask(), calls: fake.calls }
      }
      assert.deepEqual(refusing('nvmlInit_v2'), { answer: null, calls: ['nvmlInit_v2'] })
      const unknown = refusing('nvmlDeviceGetHandleByUUID')
      assert.deepEqual([unknown.answer, unknown.calls.at(-1)], [null, 'nvmlShutdown'])
      assert.deepEqual(refusing('nvmlDeviceGetComputeRunningProcesses_v3').answer, {
        processes: [{ pid: 2, bytes: 512 }],
        persistenceMode: true,
      })
      const { answer } = refusing('nvmlDeviceGetGraphicsRunningProcesses_v3', 'nvmlDeviceGetPersistenceMode')
      assert.deepEqual(answer, { processes: [{ pid: 1, bytes: 256 }], persistenceMode: null })
      assert.notEqual(refusing('nvmlShutdown').answer, null)
    }
  })

  it('is asked again once fifty times as long has passed as the answer took', () => {
    const { fake } = setUp()
    let ms = 0
    const nvml = new Nvml(fake.functions, () => ms++)
    const questions = () => fake.calls.splice(0).filter(name => name === 'nvmlInit_v2').length
    const first = nvml.ask(UUID) // took 1 ms, until 1
    assert.equal(questions(), 1)
    while (ms < 51) assert.equal(nvml.ask(UUID), first)
    assert.equal(questions(), 0)
    nvml.ask(UUID)
    assert.equal(questions(), 1)
    nvml.ask('another')
    assert.equal(questions(), 1)
  })
})

describe('the library of NVML', () => {
  it('is named with what was tried if it is missing, or lacks a function', () => {
    assert.throws(() => openNvmlLibrary(['libnvidia-ml-absent.so.1', 'libc.so.6']), {
      name: 'NoLibraryError',
      message: /none of libnvidia-ml-absent\.so\.1, libc\.so\.6 \(Cannot find function 'nvmlInit_v2'.*could be used/,
    })
  })

  it('koffi accepts all prototypes', () => {
    const koffi = createRequire(import.meta.url)('koffi') as typeof import('koffi')
    for (const prototype of Object.values(NVML_PROTOTYPES)) assert.doesNotThrow(() => koffi.proto(prototype), prototype)
  })

  const skip = spawnSync('cc', ['--version']).error !== undefined && 'no C compiler'
  it('reads the structs of C', { skip }, t => {
    const folder = mkdtempSync(join(tmpdir(), 'nvml-'))
    t.after(() => rmSync(folder, { recursive: true }))
    const [source, library] = [join(folder, 'nvml.c'), join(folder, 'libnvidia-ml.so.1')]
    writeFileSync(source, IN_C)
    execFileSync('cc', ['-shared', '-fPIC', '-o', library, source])
    assert.deepEqual(new Nvml(openNvmlLibrary([library])).ask(UUID), {
      processes: [
        { pid: 4_000_000_000, bytes: 40 * GiB },
        { pid: 2, bytes: null },
      ],
      persistenceMode: true,
    })
  })
})

/** The functions with the types of nvml.h. */
const IN_C = `
#include <string.h>
typedef struct { unsigned pid; unsigned long long usedGpuMemory; unsigned gpuInstanceId, computeInstanceId; } info;
static int device;
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **out) {
  if (strcmp(uuid, "GPU-${UUID}")) return 6;
  *out = &device;
  return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *of, unsigned *count, info *infos) {
  if (of != &device) return 2;
  int isTooShort = *count < 2;
  *count = 2;
  if (isTooShort) return 7;
  infos[0] = (info){ 4000000000u, 40ull << 30, ~0u, ~0u };
  infos[1] = (info){ 2, ~0ull, ~0u, ~0u };
  return 0;
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(void *of, unsigned *count, info *infos) { return 3; }
int nvmlDeviceGetPersistenceMode(void *of, int *mode) { *mode = 1; return of == &device ? 0 : 2; }
`
