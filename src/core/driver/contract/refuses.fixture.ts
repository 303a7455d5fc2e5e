import assert from 'node:assert/strict'
import { CudaError } from '../../base/errors.js'

/** Asserts that `act` throws a CudaError that names `call`, with `result` if one is given. */
export function refuses(act: () => unknown, call: string, result?: number): void {
  assert.throws(act, (error: unknown) => {
    assert.ok(error instanceof CudaError, `a CudaError, not ${error}`)
    assert.equal(error.call, call)
    if (result !== undefined) assert.equal(error.result, result)
    return true
  })
}
