import assert from 'node:assert/strict'
import { test } from 'node:test'
import { GiB, MiB } from '../../core/base/bytes.js'
import { type DeviceReport, deviceText } from './device-text.js'
import { PLAIN } from './table.js'

const REPORT: DeviceReport = {
  version: '0.1.0',
  node: 'v20.20.2',
  noGpu: null,
  driver: { origin: 'libcuda.so.1', simulated: false, version: '13.0' },
  nvrtc: { path: 'libnvrtc.so.12', version: '12.4' },
  devices: [0, 1].map(ordinal => ({ ordinal, name: 'NVIDIA H200', computeCapability: '9.0', totalBytes: 140 * GiB })),
  device: {
    ordinal: 1,
    name: 'NVIDIA H200',
    simulated: false,
    freeBytes: 139 * GiB,
    totalBytes: 140 * GiB,
    granularityBytes: 2 * MiB,
    limits: [],
    users: null,
  },
  kept: null,
  features: [
    { name: 'virtual memory', leastDriver: '10.2', supported: true, obstacle: null, without: 'plain segments' },
    { name: 'adopted streams', leastDriver: '12.0', supported: true, obstacle: null, without: 'none adopted' },
  ],
}

const text = (report: DeviceReport) => deviceText(report, { width: 200, paint: PLAIN })

test('the text names the driver, every device, and the opened device', () => {
  const shown = text(REPORT)
  assert.match(shown, /CUDA 13\.0, libcuda\.so\.1/)
  assert.match(shown, /device 0: NVIDIA H200, compute capability 9\.0, 140 GiB$/m)
  assert.match(shown, /device 1: .*\(the one below\)$/m)
  assert.match(shown, /139 GiB of 140 GiB free, mapped in steps of 2 MiB/)
  assert.match(shown, /virtual memory +CUDA 10\.2 +yes +plain segments/)
  assert.match(shown, /Everything works on NVIDIA H200\./)
})

test('a missing feature is shown with its reason and the loss', () => {
  const [virtual, streams] = REPORT.features
  const features = [virtual, { ...streams, supported: false, obstacle: 'the driver is too old' }]
  const shown = text({ ...REPORT, features })
  assert.match(shown, /✗ adopted streams: the driver is too old; without it: none adopted/)
  assert.doesNotMatch(shown, /Everything works/)
})

test('the text tells whether source code can be compiled', () => {
  assert.match(text(REPORT), /^NVRTC: +CUDA 12\.4, libnvrtc\.so\.12$/m)
  assert.match(
    text({ ...REPORT, nvrtc: { obstacle: 'none' } }),
    /^NVRTC: +none was found.* loadModule \(PTX\) does not/m,
  )
})

test('without a GPU the text gives the reason', () => {
  const shown = text({ ...REPORT, noGpu: 'none of libcuda.so.1, libcuda.so could be found' })
  assert.match(shown, /No GPU: none of libcuda\.so\.1, libcuda\.so could be found\./)
  assert.match(shown, /simulated device instead/)
})

test('the other processes and the persistence mode are shown where they are known', () => {
  assert.doesNotMatch(text(REPORT), /users:|mode:/)
  const processes = [1, 2, 3, 4, 5].map(pid => ({ pid, name: 'python', bytes: pid * GiB }))
  const on = (persistenceMode: boolean | null) =>
    text({ ...REPORT, device: { ...REPORT.device, users: { processes, persistenceMode } } })
  const all = processes.map(({ pid }) => `${pid} python ${pid} GiB`).join(', ')
  assert.ok(on(true).includes(`\nusers:    other processes hold 15 GiB: ${all}\n`), on(true))
  assert.match(on(true), /^mode: +persistence mode is on: /m)
  assert.match(on(false), /^mode: +persistence mode is off: when the last process ends, .* all its memory$/m)
  assert.doesNotMatch(on(null), /mode:/)
})

test('kept memory is shown with the part that has no readers, and as at risk without persistence mode', () => {
  assert.doesNotMatch(text(REPORT), /kept|unused/)
  const unused = { bytes: 8 * GiB, regions: 1, since: Date.now() - 3 * 3_600_000 }
  const kept = { bytes: 40 * GiB, regions: 3, deviceBytes: 32 * GiB, unused }
  const users = { processes: [], persistenceMode: false }
  const shown = text({ ...REPORT, kept, device: { ...REPORT.device, users } })
  assert.match(shown, /^kept: +40 GiB in 3 regions, 32 GiB of it on this device; cuda-mempool keep list shows them$/m)
  assert.match(
    shown,
    /^unused: +8 GiB in 1 region without readers, unused for 3 h; cuda-mempool keep prune --unused 1h /m,
  )
  assert.match(shown, /^mode: +persistence mode is off: .*, perhaps kept memory, too; .* sudo nvidia-smi -pm 1$/m)
  const elsewhere = text({ ...REPORT, kept: { ...kept, deviceBytes: 0 }, device: { ...REPORT.device, users } })
  assert.match(elsewhere, /^mode: .* all its memory$/m)
  const read = text({ ...REPORT, kept: { ...kept, unused: { bytes: 0, regions: 0, since: null } } })
  assert.doesNotMatch(read, /^unused/m)
})

test('limits that others set are named, and those that cannot be read', () => {
  const shown = text({
    ...REPORT,
    device: {
      ...REPORT.device,
      limits: [
        { by: 'HAMi', variable: 'CUDA_DEVICE_MEMORY_LIMIT_1', value: '3000m', bytes: 3000 * MiB },
        { by: 'KAI', variable: 'GPU_MEMORY_LIMIT', value: 'much\u001b[31m', bytes: null },
        { by: 'MIG', variable: null, value: 'NVIDIA H200 MIG 1g.18gb', bytes: 16 * GiB },
      ],
    },
  })
  assert.match(shown, /^limit: +2\.93 GiB by HAMi \(CUDA_DEVICE_MEMORY_LIMIT_1=3000m\)$/m)
  assert.match(shown, /^limit: +ignored: GPU_MEMORY_LIMIT=much\?\[31m is no size of at least 2 MiB/m)
  assert.match(shown, /^limit: +16 GiB by MIG \(NVIDIA H200 MIG 1g\.18gb\)$/m)
})
