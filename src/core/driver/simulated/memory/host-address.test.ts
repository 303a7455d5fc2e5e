import assert from 'node:assert/strict'
import { test } from 'node:test'
import { hostAddress } from './host-address.js'

test('each buffer, shared or not, keeps an address of its own', () => {
  const sizes = [0, 1, 4095, 4096, 4097, 1 << 20]
  const views = sizes
    .flatMap(bytes => [new ArrayBuffer(bytes), new SharedArrayBuffer(bytes)])
    .map(b => new Uint8Array(b))
  const places = views.map(hostAddress)
  for (const [index, view] of views.entries()) {
    assert.equal(hostAddress(view), places[index])
    for (const [other, place] of places.entries()) {
      const apart = place > places[index] + view.byteLength - 1 || place + views[other].byteLength <= places[index]
      assert.ok(other === index || apart, `${index} and ${other}`)
    }
  }
})

test('the address of a view includes its offset, and buffers do not begin at a page', () => {
  const whole = new Uint8Array(8192)
  assert.equal(hostAddress(new Float64Array(whole.buffer, 4096, 2)), hostAddress(whole) + 4096)
  assert.notEqual(hostAddress(whole) % 256, 0)
  assert.equal(hostAddress(whole) % 16, 0)
})
