// The events that a profiler receives from a pool on a GPU, through the real NVTX library. A small tool in C, loaded
// by NVTX like NVIDIA's tools, prints the events. Skipped if the host has no NVTX or no C compiler.

import assert from 'node:assert/strict'
import { execFileSync, spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, describe, it } from 'node:test'
import { fileURLToPath } from 'node:url'
import { MiB } from '../../base/bytes.js'
import { NoLibraryError } from '../../base/errors.js'
import { type Nvtx, openNvtx } from '../../libraries/nvtx.js'
import { GpuDevice } from '../gpu-device.fixture.js'
import { profiled } from './profiled.js'

/**
 * The tool replaces NVTX functions by their number in a module's table: 5 is the domains' module, 2 the CUDA
 * driver's.
 */
const TOOL = `
#include <stdint.h>
#include <stdio.h>
typedef struct {
  uint16_t version, size; uint32_t category; int32_t color_type; uint32_t color; int32_t payload_type, reserved;
  uint64_t payload; int32_t message_type; const char *message;
} event_t;
typedef struct { uint32_t ref_type, name_type; uint64_t pointer; const char *name; uint32_t category, reserved; } region_t;
typedef struct {
  uint16_t extension, size; uint32_t reserved0; size_t count, element_size; const region_t *elements; size_t reserved1;
} regions_t;
typedef struct { size_t id, count; intptr_t *slots; } segment_t;
typedef struct {
  uint16_t nvtx, size, module, extension; size_t segment_count; segment_t *segments; void *export, *info;
} module_t;
typedef struct { size_t size; int (*table)(int module, void ****table, unsigned *size); } callbacks_t;

static void *const DOMAIN = (void *)0x8000000000000005;
static void say(const char *call, void *domain, const event_t *event) {
  if (domain != DOMAIN || event->version != 3 || event->size != sizeof *event || event->message_type != 1) call = "bad";
  printf("%s %s", call, event->message);
  if (event->payload_type == 1) printf(" %llu", (unsigned long long)event->payload);
  puts("");
}
static void *create(const char *name) { printf("domain %s\\n", name); return DOMAIN; }
static void mark(void *domain, const event_t *event) { say("mark", domain, event); }
static int push(void *domain, const event_t *event) { say("push", domain, event); return 0; }
static int pop(void *domain) { puts(domain == DOMAIN ? "pop" : "bad pop"); return 0; }
static uint64_t start(void *domain, const event_t *event) { say("start", domain, event); return 0xf000000000000001; }
static void end(void *domain, uint64_t range) { puts(domain == DOMAIN && range == 0xf000000000000001 ? "end" : "bad end"); }
static void stream(void *handle, const char *name) { printf("stream %llu %s\\n", (unsigned long long)handle, name); }
static void name(void *domain, const regions_t *all) {
  int good = domain == DOMAIN && all->extension == 0x102 && all->size == sizeof *all && all->count == 1 &&
    all->element_size == sizeof *all->elements && all->elements->ref_type == 1 && all->elements->name_type == 1;
  printf("%s %s %llu\\n", good ? "memory" : "bad", all->elements->name, (unsigned long long)all->elements->pointer);
}

int InitializeInjectionNvtx2(const void *(*export)(uint32_t)) {
  const callbacks_t *callbacks = export(1);
  void ***core, ***cuda;
  unsigned size;
  setvbuf(stdout, 0, _IOLBF, 0);
  if (!callbacks->table(5, &core, &size) || !callbacks->table(2, &cuda, &size)) return 0;
  *core[1] = mark; *core[2] = start; *core[3] = end; *core[4] = push; *core[5] = pop; *core[12] = create;
  *cuda[5] = stream;
  return 1;
}
int InitializeInjectionNvtxExtension(module_t *module) {
  if (module->module != 1) return 0;
  module->segments->slots[6] = (intptr_t)name;
  return 1;
}
`

/** The process that the tool watches. */
function beWatched(): void {
  using device = new GpuDevice()
  const pool = profiled(device.createPool(), { name: 'weights', memoryNames: true })
  const { nvtx } = pool
  using stream = device.createStream()
  nvtx.nameStream(stream, 'copies')
  const buffer = pool.allocate(3 * MiB, stream)
  {
    using _step = nvtx.range('step', 7)
    device.stamp(buffer, 5)
    device.compare(buffer, 5)
    nvtx.mark('done')
  }
  const { ptr } = buffer
  buffer.free()
  process.stdout.write(`${JSON.stringify({ damages: device.damages(), handle: stream.handle, ptr })}\n`)
}

if (process.argv[2] === 'be-watched') beWatched()
else {
  let nvtx: Nvtx | null = null
  let none: string | false = false
  try {
    nvtx = openNvtx()
  } catch (error) {
    if (!(error instanceof NoLibraryError)) throw error
    none = error.message
  }

  describe('NVTX on this host', { skip: none }, () => {
    it('calls work without a tool', t => {
      using device = new GpuDevice()
      t.diagnostic(`NVTX is ${nvtx!.path}`)
      const pool = profiled(device.createPool(), { nvtx: nvtx! })
      nvtx!.nameStream(device.defaultStream, 'default')
      using range = nvtx!.range('range')
      const buffer = pool.allocate(3 * MiB)
      device.stamp(buffer, 3)
      device.compare(buffer, 3)
      buffer.free()
      assert.deepEqual(device.damages(), [])
      range.end()
    })

    it('a tool receives each call of the pool, with its values', t => {
      const folder = mkdtempSync(join(tmpdir(), 'nvtx-tool-'))
      after(() => rmSync(folder, { recursive: true }))
      const [source, tool] = [join(folder, 'tool.c'), join(folder, 'tool.so')]
      writeFileSync(source, TOOL)
      const { error } = spawnSync('cc', ['--version'])
      if (error !== undefined) return t.skip('there is no C compiler to build a tool with')
      execFileSync('cc', ['-shared', '-fPIC', '-o', tool, source])
      const env = { ...process.env, NVTX_INJECTION64_PATH: tool }
      const said = execFileSync(process.execPath, [fileURLToPath(import.meta.url), 'be-watched'], {
        env,
        encoding: 'utf8',
      })
      const lines = said.trim().split('\n')
      const { damages, handle, ptr } = JSON.parse(lines.pop()!)
      assert.deepEqual(damages, [])
      const hex = `0x${ptr.toString(16)}`
      assert.deepEqual(lines, [
        `stream ${handle} copies`,
        'domain cuda-mempool',
        `push allocate #weights ${3 * MiB}`,
        `mark 3 MiB #weights at ${hex} ${ptr}`,
        `memory 3 MiB #weights ${ptr}`,
        'pop',
        'start step 7',
        'mark done',
        'end',
        `push free #weights ${ptr}`,
        'pop',
      ])
    })
  })
}
