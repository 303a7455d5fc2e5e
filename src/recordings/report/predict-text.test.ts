import assert from 'node:assert/strict'
import { test } from 'node:test'
import { MiB } from '../../core/base/bytes.js'
import { Training, type TrainingOptions } from '../trace/analysis/training.fixture.js'
import { type PredictOptions, predict } from '../trace/predict/predict.js'
import { predictText } from './predict-text.js'
import { PLAIN } from './table.js'

/** The text of a prediction for 12 from 4 and 8. */
function text(training: TrainingOptions = {}, options: Partial<PredictOptions> = {}): string {
  const [first, second] = [4, 8].map(batch => new Training({ ...training, batch }).trace())
  return predictText(predict([first, second], { sizes: [4, 8], size: 12, ...options }), { width: 80, paint: PLAIN })
}

test('the text begins with the word predicted and the two sizes, and says that growth is assumed to go on', () => {
  assert.match(text(), /^Predicted for 12, not measured: from recordings at 4 and 8\.$/m)
  assert.match(text(), /^12 is beyond 8, so growth is assumed to go on as from 4 to 8\.$/m)
  assert.match(text(), /^100 % of the bytes at the peak keep their size or grow in a straight line\.$/m)
  assert.match(text({}, { size: 2 }), /^2 is below 4, so growth .* as from 4 to 8\.\nBlocks of equal bytes that are/m)
  assert.doesNotMatch(text({}, { size: 6 }), /beyond|below/)
})

test('a sentence says whether it fits, and the next that a device needs some memory besides', () => {
  const capacity = (mib: number, training?: TrainingOptions) => text(training, { capacityBytes: mib * MiB })
  assert.match(capacity(400), /^12 fits 400 MiB, as predicted, with \d+ MiB to spare\.$/m)
  assert.match(capacity(100), /^12 does not fit 100 MiB, as predicted\.$/m)
  assert.match(capacity(160), /^With this setting it would reserve 144 MiB instead of \S+ MiB\. 12 fits 160 MiB/m)
  assert.match(capacity(400), /CUDA context/)
  assert.doesNotMatch(text(), /CUDA context/)
})

test('growth beside a line is said, with the least and the most', () => {
  const curved = text({ activationBytes: batch => batch * batch * MiB })
  assert.match(curved, /^[\d.]+ % grow otherwise: /m)
  assert.match(curved, /^ +12 +[\d.]+ MiB +[\d.]+ MiB +at least$/m)
  assert.match(curved, /^ +12 +[\d.]+ MiB +[\d.]+ MiB +at most$/m)
})

test('a recording that ran full is named', () => {
  const [first, second] = [4, 8].map(batch => new Training({ batch, failsInForward: batch === 8 }).trace())
  const report = predict([first, second], { sizes: [4, 8], size: 12 })
  const said = predictText(report, { width: 200, paint: PLAIN })
  assert.match(said, /^The recording at 8 ran full\. The prediction has no limit/m)
  assert.doesNotMatch(said, /at 4 ran full/)
  assert.equal(report.inUseBytes.estimate, new Training({ batch: 12 }).trace().peakRequestedBytes)
})

test('a recording of the predicted size is compared', () => {
  const check = new Training({ batch: 12 }).trace()
  assert.match(text({}, { check }), /^Compared with the recording at 12, the prediction of most in use is 0\.0 % off/m)
})

test('recordings in the wrong order are refused', () => {
  const [first, second] = [8, 4].map(batch => new Training({ batch }).trace())
  assert.throws(
    () => predict([first, second], { sizes: [4, 8], size: 12 }),
    /: the recording at 4 holds more than the one at 8; name the sizes in the order of the files$/,
  )
})

test('the sites are listed with their bytes at each size', () => {
  assert.match(text(), /^ *at 4 +at 8 +at 12 +call site$/m)
  assert.match(text(), /^ *[\d.]+ MiB +[\d.]+ MiB +[\d.]+ MiB +\S*model\.py:88 forward$/m)
  for (const line of text().split('\n')) assert.ok(line.length <= 80, line)
})
