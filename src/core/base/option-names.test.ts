import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { checkOptionNames } from './option-names.js'

const NAMES = ['maxPoolBytes', 'minBlockBytes', 'streamOrdered', 'initialBytes', 'releaseThresholdBytes']

/** The end of the message for an unknown option. */
function meantBy(name: string): string {
  try {
    checkOptionNames('createPool', { [name]: 1 }, NAMES)
  } catch (error) {
    return (error as Error).message.split(NAMES.join(', '))[1]
  }
  return 'known'
}

describe('an unknown option', () => {
  const meant: Record<string, string> = {
    max_pool_size: 'maxPoolBytes',
    maximum_pool_size: 'maxPoolBytes',
    maxPoolSize: 'maxPoolBytes',
    min_block_size: 'minBlockBytes',
    'min-block-bytes': 'minBlockBytes',
    stream_ordered: 'streamOrdered',
    streamorderd: 'streamOrdered',
    initial_pool_size: 'initialBytes',
    limitBytes: 'maxPoolBytes',
    maxBytes: 'maxPoolBytes',
  }
  for (const [name, ours] of Object.entries(meant)) {
    it(`${name} leads to ${ours}`, () => assert.equal(meantBy(name), `; did you mean ${ours}?`))
  }

  it('of a device leads to the device', () => {
    assert.match(meantBy('device_id'), /^; a pool is of the device that makes it, openDevice\(number\)$/)
  })

  it('of a pool that threads share leads to its call', () => {
    for (const name of ['shared', 'readyBytes']) assert.equal(meantBy(name), '; call createSharedPool for that')
  })

  it('of another word leads to ours, where there is such an option', () => {
    const refused = (name: string, names: readonly string[]) => () => checkOptionNames('call', { [name]: 1 }, names)
    assert.throws(refused('timeout', ['signal']), { message: /; a deadline is signal: AbortSignal\.timeout\(ms\)$/ })
    assert.throws(refused('threads', ['grid', 'block']), { message: /; did you mean block\?$/ })
    assert.throws(refused('timeout', ['grid']), { message: /the options are grid$/ })
  })

  it('that is an instance of a class is refused as a whole', () => {
    class Buffer {
      allocation = 1
    }
    const message = 'call: options must be an object such as { grid }, not a Buffer'
    assert.throws(() => checkOptionNames('call', new Buffer(), ['grid']), { name: 'TypeError', message })
    checkOptionNames('call', Object.create(null), ['grid'])
  })

  it('that is like none is only refused', () => assert.equal(meantBy('colour'), ''))
})
