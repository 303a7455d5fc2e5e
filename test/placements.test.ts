// Where the policies of a replay place the blocks of recordings, on the simulated device.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { readRecording } from '../src/recordings/trace/formats/read-recording.js'
import type { ExistenceRanges, Placements } from '../src/recordings/trace/placements/placements.js'
import { replay } from '../src/recordings/trace/replay.js'
import { replayDevices } from '../src/recordings/trace/replay-devices.js'

const recording = (name: string) => fileURLToPath(new URL(`../../traces/${name}.pickle.gz`, import.meta.url))

const POLICIES = ['recorded', 'pytorch', 'pytorch-expandable', 'cuda-mempool', 'power-of-two', 'waiting'] as const

/** Bytes of the memory that exists at an event, each byte once even if it is mapped twice. */
function existing({ count, bytes, memory, from, to }: ExistenceRanges, event: number): number {
  const parts: [number, number][] = []
  for (let i = 0; i < count; i++) if (from[i] <= event && event < to[i]) parts.push([memory[i], memory[i] + bytes[i]])
  let end = 0
  let total = 0
  for (const [start, stop] of parts.sort((a, b) => a[0] - b[0])) {
    total += Math.max(0, stop - Math.max(start, end))
    end = Math.max(end, stop)
  }
  return total
}

/** Whether memory exists at all addresses of a block at an event. */
function exists({ count, address, bytes, from, to }: ExistenceRanges, at: number, size: number, event: number) {
  let cursor = at
  for (let again = true; again && cursor < at + size; ) {
    again = false
    for (let i = 0; i < count; i++) {
      const isAt = address[i] <= cursor && cursor < address[i] + bytes[i] && from[i] <= event && event < to[i]
      if (isAt) {
        cursor = address[i] + bytes[i]
        again = true
      }
    }
  }
  return cursor >= at + size
}

for (const name of ['mlp-train-stacks', 'multistream-random']) {
  test(`each policy's blocks of ${name} lie in memory that exists, as much of it as is reserved`, async () => {
    const trace = readRecording(recording(name))
    const report = await replay(trace, replayDevices(trace), { policies: POLICIES, placements: true })
    for (const { policy, peakReservedBytes, placements } of report.runs) {
      const { address, ranges, reservedBytes } = placements as Placements
      assert.ok(address !== null && ranges !== null && reservedBytes !== null)
      assert.equal(Math.max(...reservedBytes), peakReservedBytes, policy)
      const { blocks } = trace
      for (let block = 0; block < blocks.count; block += 7) {
        for (const event of [blocks.allocatedAt[block], blocks.freeRequestedAt[block] - 1]) {
          if (event < 0 || event >= trace.events) continue
          assert.ok(exists(ranges, address[block], blocks.bytes[block], event), `${policy}: block ${block} at ${event}`)
        }
      }
      for (let event = 0; event < trace.events; event += 29) {
        assert.equal(existing(ranges, event), reservedBytes[event], `${policy} at ${event}`)
      }
    }
  })
}

test('placements are those of the first round, and driver policies have a curve only', async () => {
  const trace = readRecording(recording('mlp-train-stacks'))
  const policies = ['pytorch', 'cuda-mempool', 'driver-malloc', 'driver-pool'] as const
  const placed = async (repeat: number) =>
    (await replay(trace, replayDevices(trace), { policies, placements: true, repeat })).runs.map(run => run.placements)
  const once = await placed(1)
  assert.deepEqual(await placed(3), once)
  for (const placements of once.slice(2)) {
    assert.deepEqual([placements?.address, placements?.ranges], [null, null])
    assert.equal(placements?.reservedBytes?.length, trace.events)
  }
  const [plain] = (await replay(trace, replayDevices(trace), { policies })).runs
  assert.equal(plain.placements, null)
})
