import assert from 'node:assert/strict'
import { test } from 'node:test'
import { CudaError, DeviceLostError, FormatError, NoDeviceError } from '../base/errors.js'
import { explain, STATUS, UsageError } from './exit.js'

/** The status, and what is said on stderr. */
function explained(error: unknown): [number, string] {
  const { write } = process.stderr
  let said = ''
  process.stderr.write = (text: string | Uint8Array) => {
    said += text
    return true
  }
  try {
    return [explain(error), said]
  } finally {
    process.stderr.write = write
  }
}

test('what a user or a driver did is said in one line', () => {
  const refused = new CudaError('cuInit', 803, 'CUDA_ERROR_SYSTEM_DRIVER_MISMATCH')
  for (const error of [new UsageError('no'), new FormatError('no'), refused, new DeviceLostError(refused)]) {
    assert.deepEqual(explained(error), [STATUS.refused, `cuda-mempool: ${error.message}\n`])
  }
})

test('a message stays one line and harmless, whatever a file put into it', () => {
  assert.equal(explained(new FormatError('calls\n\x1b[2Jos.system\t'))[1], 'cuda-mempool: calls [2Jos.system\n')
})

test('the remedy for no GPU is the one of the command line', () => {
  const [status, line] = explained(new NoDeviceError("no GPU; use openDevice('simulated')"))
  assert.deepEqual([status, line], [STATUS.refused, 'cuda-mempool: no GPU; use --device simulated\n'])
})

test('a mistake of our own is shown in full, with a status of its own', () => {
  const [status, text] = explained(new TypeError('x is not a function'))
  assert.equal(status, STATUS.defect)
  assert.match(text, /TypeError: x is not a function\n +at /)
})
