import assert from 'node:assert/strict'
import { test } from 'node:test'
import { CLASSES, classFloorUnits, classOf, MAX_UNITS, powerOfTwoUnits, roundUpToClass } from './size-classes.js'

/** The obvious way: counts up through the classes until the next one begins above the size. */
function slowClassOf(units: number): number {
  let sizeClass = 0
  let floor = 0
  let step = 1
  while (floor + step <= units) {
    floor += step
    sizeClass++
    if (sizeClass >= 32 && sizeClass % 16 === 0) step *= 2
  }
  return sizeClass
}

test('every size to 2^20 is in the class that the slow version finds', () => {
  let sizeClass = 0
  for (let units = 1; units <= 2 ** 20; units++) {
    if (units % 4099 === 0 || units < 5000) assert.equal(classOf(units), slowClassOf(units))
    const found = classOf(units)
    assert.ok(found === sizeClass || found === sizeClass + 1, `classes rise one by one at ${units}`)
    sizeClass = found
    assert.ok(classFloorUnits(found) <= units && classFloorUnits(found + 1) > units, `bounds of the class of ${units}`)
  }
})

test('both sides of every power of two are in the class that the slow version finds', () => {
  for (let exponent = 1; exponent <= 30; exponent++) {
    for (const units of [2 ** exponent - 1, 2 ** exponent, 2 ** exponent + 1]) {
      assert.equal(classOf(units), slowClassOf(units))
    }
  }
  assert.equal(classOf(MAX_UNITS), CLASSES - 1)
})

test('a class is at most a sixteenth wide', () => {
  for (let sizeClass = 16; sizeClass < CLASSES - 1; sizeClass++) {
    const [floor, next] = [classFloorUnits(sizeClass), classFloorUnits(sizeClass + 1)]
    assert.ok((next - floor) / floor <= 1 / 16)
  }
})

test('powers of two round up', () => {
  for (let units = 1; units < 5000; units++) {
    const rounded = powerOfTwoUnits(units)
    assert.ok(rounded >= units && rounded < units * 2 && Number.isInteger(Math.log2(rounded)))
  }
  assert.equal(powerOfTwoUnits(2 ** 30 + 1), 2 ** 31)
})

test('sizes round up to the beginning of a class', () => {
  let floor = 1
  for (let units = 1; units <= 2 ** 16; units++) {
    if (units > floor) floor = classFloorUnits(classOf(floor) + 1)
    assert.equal(roundUpToClass(units), floor)
  }
})
