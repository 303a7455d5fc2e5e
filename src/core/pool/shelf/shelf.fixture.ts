// A shelf on a small simulated device, and a neighbour that takes memory of the same device.

import assert from 'node:assert/strict'
import { MiB } from '../../base/bytes.js'
import type { DeviceBuffer } from '../buffer.js'
import { isFilled, TestDevice } from '../pool.fixture.js'
import { Shelf } from './shelf.js'
import type { ModelOptions, ShelfOptions } from './shelf-options.js'

export const MODEL_BYTES = 4 * MiB

/** A model whose weights all have one value. */
export interface TestModel {
  readonly weights: DeviceBuffer
}

export function openShelf(modelsAwake: number, options: ShelfOptions & { readonly slackBytes?: number } = {}) {
  const { slackBytes = 0, ...shelfOptions } = options
  const device = new TestDevice({ capacityBytes: modelsAwake * MODEL_BYTES + slackBytes })
  const capacityBytes = device.freeBytes()
  const shelf = new Shelf<TestModel>(device, { budgetBytes: modelsAwake * MODEL_BYTES, ...shelfOptions })
  return { device, shelf, capacityBytes }
}

/** The options of a model whose weights have `value`. */
export function modelOf(value: number, options: Partial<ModelOptions<TestModel>> = {}): ModelOptions<TestModel> {
  return {
    bytes: MODEL_BYTES,
    load: pool => {
      const weights = pool.allocate(300_000)
      weights.fill(value)
      return { weights }
    },
    ...options,
  }
}

/** Adds models a, b, c, …, with the values 1, 2, 3, … */
export function addModels(shelf: Shelf<TestModel>, count: number, options: Partial<ModelOptions<TestModel>> = {}) {
  const names = Array.from({ length: count }, (_, index) => String.fromCharCode(97 + index))
  for (const [index, name] of names.entries()) shelf.add(name, modelOf(index + 1, options))
  return names
}

/** The value of all weights of a model. */
export function weightsOf({ weights }: TestModel): number {
  const bytes = weights.readSync()
  assert.ok(isFilled(bytes, bytes[0]), 'all weights are equal')
  return bytes[0]
}

/** The names of the models in a state. */
export function inState(shelf: Shelf<TestModel>, state: string): string {
  return shelf
    .stats()
    .models.filter(model => model.state === state)
    .map(({ name }) => name)
    .join('')
}

/** Another program on the device. */
export class Neighbour {
  heldBytes = 0
  private readonly held: { readonly ptr: number; readonly bytes: number }[] = []

  constructor(private readonly device: TestDevice) {}

  /** Takes `bytes`, or the free memory if that is less. */
  take(bytes: number): void {
    const taken = Math.min(bytes, this.device.freeBytes())
    if (taken === 0) return
    this.held.push({ ptr: this.device.driver.cuMemAlloc(taken), bytes: taken })
    this.heldBytes += taken
  }

  giveBack(): void {
    for (const { ptr } of this.held.splice(0)) this.device.driver.cuMemFree(ptr)
    this.heldBytes = 0
  }
}
