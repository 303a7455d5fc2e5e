// The models against recordings made under settings, on a GPU with PyTorch 2.11.

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { gunzipSync } from 'node:zlib'
import { excerptOf } from '../columns/excerpt.js'
import { readRecording } from '../formats/read-recording.js'
import { parsePytorchSettings } from './model/pytorch-settings.js'
import { recordedPytorchSettings } from './named-settings.js'
import { readPickle } from './pickle.js'
import { writePickle } from './pickle-writer.js'
import { programReleases } from './program-releases.js'
import { replayPytorchPolicy } from './pytorch-replay.js'
import { RECORDED_RUNS, RUNS, settingsRecording } from './settings-recordings.fixture.js'

const ALLOCATIONS = 54_084

test('there is a recording of each kind of setting', () => {
  const confs = RECORDED_RUNS.map(run => run.settings).join()
  for (const name of ['expandable', 'max_split', 'non_split', 'roundup', 'garbage']) assert.match(confs, RegExp(name))
  assert(RECORDED_RUNS.some(run => run.outOfMemories > 0 && run.retries > run.outOfMemories))
})

test("under each setting every block has PyTorch's address, and memory is given back where PyTorch did", () => {
  let allocations = 0
  for (const run of RECORDED_RUNS) {
    const trace = settingsRecording(run.name)
    const settings = parsePytorchSettings(run.settings)
    assert.deepEqual(recordedPytorchSettings(trace), settings, run.name)
    const { limitBytes } = run
    const result = replayPytorchPolicy(trace, {
      settings,
      ...(limitBytes === undefined ? {} : { limitBytes }),
      programReleases: programReleases(trace, limitBytes),
      failedFrom: 0,
    })
    assert.deepEqual(result.placement, { allocations: trace.allocations, exact: trace.allocations }, run.name)
    assert.equal(result.reservedAlike, trace.allocations, run.name)
    const { peakReservedBytes, peakGrantedBytes, retries, failures } = result
    const { name, settings: _, limitBytes: __, ...counted } = run
    assert.deepEqual({ peakReservedBytes, peakGrantedBytes, retries, outOfMemories: failures }, counted, name)
    allocations += trace.allocations
  }
  assert.equal(allocations, ALLOCATIONS)
})

test("blocks keep PyTorch's addresses if the recorded releases are followed, whatever the limit was", () => {
  for (const { name, settings } of RECORDED_RUNS) {
    const trace = settingsRecording(name)
    const { placement } = replayPytorchPolicy(trace, { settings: parsePytorchSettings(settings) })
    assert.equal(placement?.exact, trace.allocations, name)
  }
})

test('recordings that begin in the middle keep the addresses, under each setting', () => {
  for (const { name, settings } of RECORDED_RUNS) {
    const trace = settingsRecording(name)
    for (const share of [0.25, 0.5, 0.75]) {
      const later = excerptOf(trace, Math.floor(trace.events * share), trace.events)
      const { placement } = replayPytorchPolicy(later, { settings: parsePytorchSettings(settings) })
      assert.equal(placement?.exact, later.allocations, `${name} from ${share} of its events on`)
    }
  }
})

test('a wrong address in a recording is noticed', () => {
  for (const name of ['mlp-split64', 'mlp-loose-gc60', 'streams-expandable', 'sizes-nonsplit', 'sizes-roundlist']) {
    const file = new URL(`../../../../../traces/settings/${name}.pickle.gz`, import.meta.url)
    const root = readPickle(gunzipSync(readFileSync(file))) as { device_traces: Record<string, unknown>[][] }
    const events = root.device_traces[0]
    const planted = events.findIndex((event, i) => i > events.length / 2 && event['action'] === 'alloc')
    const { addr } = events[planted]
    // Up to its free, so that the recording stays consistent.
    for (const event of events.slice(planted)) {
      if (event['addr'] === addr) event['addr'] = (addr as number) + 512
      if (event['action'] === 'free_completed' && event['addr'] === (addr as number) + 512) break
    }
    const trace = readRecording(writePickle(root), { name })
    const { placement } = replayPytorchPolicy(trace, { settings: recordedPytorchSettings(trace) })
    assert.equal(placement?.exact, trace.allocations - 1, name)
  }
})

test('other settings give a policy no recorded addresses', () => {
  const trace = settingsRecording('mlp-split64')
  assert.equal(replayPytorchPolicy(trace, { settings: parsePytorchSettings('max_split_size_mb:128') }).placement, null)
  assert.equal(replayPytorchPolicy(trace).placement, null)
})

// These programs make the same requests under each setting, until one fails.
for (const program of ['transformer', 'mlp', 'sizes']) {
  test(`a recording of ${program} by default tells what PyTorch reserves under each setting`, () => {
    const trace = settingsRecording(`${program}-default`)
    const releases = programReleases(trace)
    const runs = RUNS.filter(run => run.name.startsWith(program) && !run.settings.includes('Async'))
    assert(runs.length > 20)
    for (const { name, settings, limitBytes, peakReservedBytes, retries, outOfMemories } of runs) {
      const result = replayPytorchPolicy(trace, {
        settings: parsePytorchSettings(settings),
        ...(limitBytes === undefined ? {} : { limitBytes }),
        programReleases: releases,
      })
      assert.equal(result.failures > 0, outOfMemories > 0, name)
      if (outOfMemories > 0) continue
      assert.deepEqual([result.peakReservedBytes, result.retries], [peakReservedBytes, retries], name)
    }
  })
}
