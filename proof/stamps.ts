// Kernels of the simulated device that write a stamp into a buffer, and compare it, when the stream gets there. A
// wrong word is remembered as damage until the program asks.

import assert from 'node:assert/strict'
import type { Kernel } from '../src/core/kernel/kernel.js'
import type { Module } from '../src/core/kernel/module.js'
import { registerSimulatedKernel } from '../src/entries/simulated.js'
import type { DeviceBuffer, Stream } from '../src/index.js'

export const STAMP_PTX = `
.version 8.0
.target sm_90
.address_size 64
.visible .entry proof_stamp(.param .u64 words, .param .u64 count, .param .u32 stamp) { ret; }
.visible .entry proof_compare(.param .u64 words, .param .u64 count, .param .u32 stamp) { ret; }`

const SAMPLES = 8
/** the wrong words that the kernels found */
const damage: string[] = []

/** A few words from the first to the last stand for the whole buffer. */
function placesOf(ptr: number, count: number): number[] {
  const places: number[] = []
  for (let sample = 0; sample <= SAMPLES; sample++) places.push(ptr + 4 * Math.floor(((count - 1) * sample) / SAMPLES))
  return places
}

registerSimulatedKernel('proof_stamp', ({ args, memory }) => {
  const stamp = Uint32Array.of(args.uint32(2))
  for (const place of placesOf(args.pointer(0), args.pointer(1))) memory.store(place, stamp)
})

registerSimulatedKernel('proof_compare', ({ args, memory }) => {
  const stamp = args.uint32(2)
  for (const place of placesOf(args.pointer(0), args.pointer(1))) {
    const [found] = memory.load(Uint32Array, place, 1)
    if (found !== stamp) damage.push(`a word of 0x${args.pointer(0).toString(16)} is ${found}, not ${stamp}`)
  }
})

/** The kernels as one device has loaded them. */
export class Stamps {
  private readonly writes: Kernel
  private readonly compares: Kernel

  constructor(module: Module) {
    this.writes = module.kernel('proof_stamp')
    this.compares = module.kernel('proof_compare')
  }

  write(buffer: DeviceBuffer, bytes: number, stamp: number, stream: Stream): void {
    this.writes.launch({ grid: 1, block: 1, stream }, buffer, bytes >> 2, stamp)
  }

  compare(buffer: DeviceBuffer, bytes: number, stamp: number, stream: Stream): void {
    this.compares.launch({ grid: 1, block: 1, stream }, buffer, bytes >> 2, stamp)
  }
}

export function assertNoDamage(): void {
  if (damage.length > 0) assert.fail(damage[0])
}

export function forgetDamage(): void {
  damage.length = 0
}
