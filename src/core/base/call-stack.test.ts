import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { afterEach, test } from 'node:test'
import { inspect } from 'node:util'
import { checkByteCount } from './bytes.js'
import { PoolError } from './errors.js'

const { stackTraceLimit, prepareStackTrace } = Error
afterEach(() => Object.assign(Error, { stackTraceLimit, prepareStackTrace }))

const HEADER = 'RangeError: size must be a whole number of bytes from 0 to 2^53 - 1, not -1'

/** The error of a call of this package. */
function mistake(): Error {
  try {
    checkByteCount(-1, 'size', 0)
  } catch (error) {
    return error as Error
  }
  throw new Error('no error')
}

test('a stack begins with the program, and has as many frames as the program wants', () => {
  for (const limit of [1, 3, stackTraceLimit]) {
    Error.stackTraceLimit = limit
    const [header, first, ...others] = mistake().stack!.split('\n')
    assert.equal(header, HEADER)
    assert.match(first, /^ {4}at mistake .*\/call-stack\.test\.js:\d+:\d+\)$/)
    assert.ok(others.length === limit - 1 || limit > 3, `${others.length} others`)
    assert.equal(Error.stackTraceLimit, limit)
  }
  Error.stackTraceLimit = 0
  assert.equal(mistake().stack, HEADER)
})

test('a stack can be replaced, is not listed, and is what Node prints', () => {
  const error = mistake()
  assert.ok(inspect(error).includes(error.stack!.slice(HEADER.length)))
  assert.deepEqual(Object.keys(error), ['code'])
  assert.equal(structuredClone(error).stack, error.stack)
  error.stack = 'mine'
  assert.equal(error.stack, 'mine')
})

test('a formatter of the program decides', () => {
  Error.prepareStackTrace = (_, sites) => sites
  const sites = mistake().stack as unknown as NodeJS.CallSite[]
  assert.match(sites[0].getFileName()!, /\/dist\/src\/core\//)
})

test('an error without a frame of the program keeps all frames', async () => {
  const error = await new Promise<Error>(resolve => {
    const make = PoolError.bind(null, 'wrong')
    setImmediate(() => resolve(Reflect.construct(make, [])))
  })
  assert.match(error.stack!, /node:internal/)
})

test('the frames of a class derived by the program are left out, as of any error', () => {
  class Mine extends PoolError {}
  const made = () => new Mine('wrong')
  assert.match(made().stack!, /^PoolError: wrong\n {4}at made /)
})

test('a function is under way within its own call only, also where Error cannot be changed', () => {
  const program = `
    import { isUnderWay } from '${new URL('call-stack.js', import.meta.url)}'
    const call = () => isUnderWay(call)
    const inner = () => call()
    console.log(call(), inner(), isUnderWay(call))`
  for (const flags of [[], ['--frozen-intrinsics', '--no-warnings']]) {
    const output = execFileSync(process.execPath, [...flags, '--input-type=module', '-e', program], {
      encoding: 'utf8',
    })
    assert.equal(output, 'true true false\n', `with flags: ${flags.join(' ')}`)
  }
})
