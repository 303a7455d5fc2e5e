import assert from 'node:assert/strict'
import { test } from 'node:test'
import { OutOfRangeError } from '../core/base/argument-errors.js'
import { CudaError, DeviceLostError, FormatError, NoDeviceError } from '../core/base/errors.js'
import { explain, STATUS, UsageError } from './exit.js'

/** The exit status and the text on stderr. */
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

test('an error of the user or the driver is one line', () => {
  const refused = new CudaError('cuInit', 803, 'CUDA_ERROR_SYSTEM_DRIVER_MISMATCH')
  for (const error of [new UsageError('no'), new FormatError('no'), refused, new DeviceLostError(refused)]) {
    assert.deepEqual(explained(error), [STATUS.refused, `cuda-mempool: ${error.message}\n`])
  }
})

test('a message stays one line without escapes, whatever a file contains', () => {
  assert.equal(explained(new FormatError('calls\n\x1b[2Jos.system\t'))[1], 'cuda-mempool: calls [2Jos.system\n')
})

test('the remedy for no GPU is a command line option', () => {
  const [status, line] = explained(new NoDeviceError("no GPU; use openDevice('simulated')"))
  assert.deepEqual([status, line], [STATUS.refused, 'cuda-mempool: no GPU; use --device simulated\n'])
})

test('a result that no text can hold is one line', () => {
  const said = 'cuda-mempool: the result is longer than a text can be; take a part of the recording\n'
  assert.deepEqual(explained(longText()), [STATUS.refused, said])
})

/** The error of V8 for a text that would be too long. */
function longText(): unknown {
  try {
    return ['x'.repeat(2 ** 28), 'x'.repeat(2 ** 28), 'x'.repeat(2 ** 28)].join('')
  } catch (error) {
    return error
  }
}

test('an argument out of range is one line, and a RangeError of JavaScript is a defect', () => {
  const argument = new OutOfRangeError('event must be a whole number')
  assert.deepEqual([argument instanceof RangeError, argument.name], [true, 'RangeError'])
  assert.deepEqual(explained(argument), [STATUS.refused, 'cuda-mempool: event must be a whole number\n'])
  const endless = (): number => 1 + endless()
  for (const fail of [endless, () => new Array(-1), () => 'x'.repeat(-1), () => (1).toFixed(101)]) {
    try {
      fail()
      assert.fail('no error')
    } catch (error) {
      assert.ok(error instanceof RangeError, String(error))
      assert.equal(explained(error)[0], STATUS.defect, error.message)
    }
  }
})

test('a bug of this program is shown with its stack, and has its own status', () => {
  const [status, text] = explained(new TypeError('x is not a function'))
  assert.equal(status, STATUS.defect)
  assert.match(text, /TypeError: x is not a function\n +at /)
})
