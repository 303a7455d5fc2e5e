import assert from 'node:assert/strict'
import { test } from 'node:test'
import { AddressPlaces, firstRepeated } from './address-places.js'

test('equal addresses have one place, and places rise with their addresses', () => {
  const places = new AddressPlaces(Float64Array.of(4096, 512, 4096, 0, 2 ** 47))
  assert.deepEqual([...places.addresses], [0, 512, 4096, 2 ** 47])
  assert.deepEqual([...places.of], [2, 1, 2, 0, 3])
  assert.deepEqual(
    [0, 1, 512, 513, 2 ** 48].map(address => places.from(address)),
    [0, 1, 1, 2, 4],
  )
  assert.deepEqual(
    [0, 1, 2 ** 47, 2 ** 48].map(address => places.at(address)),
    [0, -1, 3, -1],
  )
})

test('NaN gets the place -1, and all other addresses are still found', () => {
  const places = new AddressPlaces(Float64Array.of(4096, NaN, 512, NaN, NaN, 1024))
  assert.deepEqual(
    [512, 1024, 4096, 8192, NaN].map(address => places.at(address)),
    [0, 1, 2, -1, -1],
  )
})

test('an empty list leaves every address without a place', () => {
  assert.equal(new AddressPlaces(new Float64Array()).at(0), -1)
})

test('the first repeated address of a list is found', () => {
  const repeated = [[], [7], [7, 8], [7, 8, 8, 7], [9, 7, 8, 7, 8]].map(list => firstRepeated(Float64Array.from(list)))
  assert.deepEqual(repeated, [-1, -1, -1, 2, 3])
})
