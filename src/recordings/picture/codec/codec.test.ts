import assert from 'node:assert/strict'
import { test } from 'node:test'
import { FormatError } from '../../../core/base/errors.js'
import { Random } from '../../../core/base/random.js'
import { readRecording } from '../../trace/formats/read-recording.js'
import { recordedPlacements } from '../../trace/placements/recorded-placements.js'
import { NEVER } from '../../trace/trace.js'
import { makePicture } from '../make-picture.js'
import type { Picture } from '../picture.js'
import { randomPicture } from '../pictures.fixture.js'
import { decodePicture, encodePicture } from './codec.js'

const RECORDINGS = ['gpt2-expandable', 'mlp-train-stacks', 'multistream-random', 'oom-retry-2gib']

/** A picture whose memory ends with the recording, as a decoded one has it. */
function cut({ policies, events, ...picture }: Picture): Picture {
  const ended = policies.map(policy => ({
    ...policy,
    memory: policy.memory.map(each => ({ ...each, to: Math.min(each.to, NEVER, events) })),
  }))
  return { ...picture, events, policies: ended }
}

for (const name of RECORDINGS) {
  test(`the picture of ${name} is the same after it was written and read`, () => {
    const trace = readRecording(`traces/${name}.pickle.gz`)
    const picture = makePicture(trace, [{ policy: 'recorded', label: 'recorded', ...recordedPlacements(trace) }])
    assert.deepEqual(decodePicture(encodePicture(picture)), cut(picture))
  })
}

test('a picture without events and without policies is the same after it was written and read', () => {
  const picture = { ...randomPicture(new Random(3), 40, 20), policies: [] }
  assert.deepEqual(decodePicture(encodePicture(picture)), picture)
})

test('every damaged picture is refused with a FormatError, or is still a picture', () => {
  const bytes = encodePicture(randomPicture(new Random(5), 60, 20))
  const random = new Random(11)
  const refused = (damaged: Uint8Array) => {
    try {
      decodePicture(damaged)
      return false
    } catch (error) {
      assert.ok(error instanceof FormatError, String(error))
      return true
    }
  }
  for (let end = 0; end < bytes.length; end++) assert.ok(refused(bytes.subarray(0, end)), `cut at ${end}`)
  let count = 0
  for (let i = 0; i < 3000; i++) {
    const damaged = bytes.slice()
    damaged[random.below(bytes.length)] = random.below(256)
    if (refused(damaged)) count++
  }
  assert.ok(count > 500, `${count} refused`)
  assert.throws(() => decodePicture(new Uint8Array([1, 2, 3])), FormatError)
})
