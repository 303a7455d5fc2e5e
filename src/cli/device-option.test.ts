import assert from 'node:assert/strict'
import { test } from 'node:test'
import { chosenDevice } from './device-option.js'

test('the device is auto, simulated or a number, by the option or else by the variable', () => {
  assert.deepEqual(
    ['auto', 'simulated', '0', '12'].map(text => chosenDevice(text, { CUDA_MEMPOOL_DEVICE: '3' })),
    ['auto', 'simulated', 0, 12],
  )
  assert.equal(chosenDevice(undefined, { CUDA_MEMPOOL_DEVICE: '3' }), 3)
  assert.equal(chosenDevice(undefined, { CUDA_MEMPOOL_DEVICE: '' }), 'auto')
  assert.equal(chosenDevice(undefined, {}), 'auto')
})

test('other text is refused, with its source', () => {
  for (const text of ['', 'gpu', '-1', '1.5', ' 0', '0x1', 'Simulated']) {
    const message = `--device: '${text}' is no device; write auto, simulated or a number`
    assert.throws(() => chosenDevice(text, {}), { name: 'UsageError', message })
  }
  const message = /^CUDA_MEMPOOL_DEVICE: 'gpu' is no device/
  assert.throws(() => chosenDevice(undefined, { CUDA_MEMPOOL_DEVICE: 'gpu' }), { message })
})
