// Debug mode's tests share this set-up, and one way to judge an error and its call sites.

import assert from 'node:assert/strict'
import { setImmediate as turn } from 'node:timers/promises'
import { MiB } from '../../base/bytes.js'
import { DebugError, type Fault } from '../../base/errors.js'
import { registerSimulatedKernel } from '../../driver/simulated-kernels.js'
import { Module } from '../../kernel/module.js'
import type { Stream } from '../../order/stream.js'
import type { DeviceBuffer } from '../buffer.js'
import type { DebugOptions } from '../caching/debug-options.js'
import { TestDevice } from '../pool.fixture.js'

const PTX = `
.version 6.3
.target sm_70
.address_size 64
.visible .entry poke(.param .u64 target, .param .u32 offset) { ret; }`

registerSimulatedKernel('poke', ({ args, memory }) => {
  memory.store(args.pointer(0) + args.uint32(1), Uint8Array.of(1))
})

export function setUp(debug: true | DebugOptions = true, maxPoolBytes = 64 * MiB) {
  const device = new TestDevice()
  const pool = device.createPool({ debug, maxPoolBytes })
  const [a, b, c] = Array.from({ length: 3 }, () => device.createStream())
  const kernel = new Module(device.context, device.defaultStream, PTX).kernel('poke')
  /** A kernel on `stream` that writes one byte, inside of the buffer or not. */
  const poke = (buffer: { readonly ptr: number }, offset: number, stream: Stream) =>
    kernel.launch({ grid: 1, block: 1, stream }, buffer, offset)
  return { device, pool, a, b, c, poke }
}

/** The line of the test that calls this function; call sites name lines of the built file, as stacks do. */
export function here(): string {
  return /[\w-]+\.test\.js:\d+/.exec(new Error().stack!.split('\n')[2])![0]
}

/** The fault that `action` throws. */
export function faultOf(action: () => unknown, fault: Fault, message?: RegExp): DebugError {
  let found: unknown = null
  try {
    action()
  } catch (error) {
    found = error
  }
  assert.ok(found instanceof DebugError, `${fault} is found, not ${found}`)
  assert.equal(found.fault, fault, found.message)
  if (message !== undefined) assert.match(found.message, message)
  for (const site of Object.values(found.sites)) assert.ok(found.message.includes(site), 'the message has every site')
  return found
}

/** The warnings of the process that `action` causes. */
export async function warningsOf(action: () => unknown): Promise<string[]> {
  const warnings: string[] = []
  const note = (warning: Error) => warnings.push(`${warning.name}: ${warning.message}`)
  const listeners = process.listeners('warning')
  process.removeAllListeners('warning') // Node's own listener would print them
  process.on('warning', note)
  try {
    await action()
    await turn() // warnings are emitted a moment later
  } finally {
    process.off('warning', note)
    for (const listener of listeners) process.on('warning', listener)
  }
  return warnings
}

export function lineOf(site: string): number {
  return Number(/\.(?:test|suite)\.js:(\d+)/.exec(site)?.[1])
}

/** A view of a whole buffer, built without its constructor. */
export function viewOf(buffer: DeviceBuffer): { ptr: number; noteUse(stream: Stream, call: string): void } {
  return { ptr: buffer.ptr, noteUse: (stream, call) => buffer.noteUse(stream, call) }
}
