// Every exported function and class with arguments of wrong types: the error says which argument is wrong. V8's own
// errors tell a user nothing about the argument.

import assert from 'node:assert/strict'
import { readdirSync } from 'node:fs'
import { describe, it } from 'node:test'
import { Communicator } from '../src/entries/nccl.js'
import * as main from '../src/index.js'

const HOSTILE: readonly unknown[] = [undefined, null, {}, { toString: 1 }, Symbol('s'), 5, 'x', [], () => {}, 5n]
const OF_V8 =
  /Cannot (read|destructure|convert|mix|use 'in')|is not (a function|iterable|an object|defined)|^Invalid (array|typed)|Maximum call stack|incompatible receiver/

type Exported = new (...args: readonly unknown[]) => unknown

async function errorOf(exported: Exported, args: readonly unknown[]): Promise<unknown> {
  const isClass = /^class\b/.test(Function.prototype.toString.call(exported))
  try {
    const result = isClass ? new exported(...args) : await Reflect.apply(exported, undefined, [...args])
    const { close } = (result ?? {}) as { close?: unknown }
    if (!isClass && typeof close === 'function') await close.call(result)
    return null
  } catch (error) {
    return error
  }
}

/** Calls with `args`, and expects an error that names an argument, or none. */
async function expectNamed(what: string, call: Exported, args: readonly unknown[]): Promise<void> {
  const error = await errorOf(call, args)
  if (error === null) return
  assert.ok(error instanceof Error)
  assert.doesNotMatch(error.message, OF_V8, what)
  assert.match(String((error as { code?: string }).code), /^ERR_/, error.message)
}

/** Classes that programs do not make: their static functions make them. */
const STATIC: Readonly<Record<string, readonly string[]>> = { Communicator: ['join', 'joinAll', 'group'] }

/** What programs call of an export, by name. */
function callsOf(name: string, exported: Exported): [string, Exported][] {
  const functions = exported as unknown as Readonly<Record<string, Exported>>
  return STATIC[name]?.map(each => [`${name}.${each}`, functions[each]]) ?? [[name, exported]]
}

const entries = readdirSync(new URL('../src/entries', import.meta.url)).filter(path => /^\w+\.js$/.test(path))
for (const name of ['../index.js', ...entries]) {
  const module = (await import(`../src/entries/${name}`)) as Record<string, unknown>
  describe(`exports of ${name} with arguments of wrong types`, () => {
    for (const [exportName, exported] of Object.entries(module)) {
      if (typeof exported !== 'function') continue
      for (const [callName, call] of callsOf(exportName, exported as Exported)) {
        it(callName, async () => {
          for (const value of HOSTILE) {
            for (const count of [0, 1, 2, 3]) {
              await expectNamed(`${callName} with ${count} times ${typeof value}`, call, new Array(count).fill(value))
            }
          }
        })
      }
    }
  })
}

describe('methods with arguments of wrong types', () => {
  it('name the argument', () => {
    using device = main.openDevice('simulated')
    const stream = device.createStream()
    const wrong = (value: unknown) => value as never
    const calls: readonly (readonly [() => unknown, RegExp])[] = [
      [() => stream.beginCapture(wrong({ toString: 1 })), /^beginCapture: mode must be .*, not an Object$/],
      [() => device.capture(stream, () => {}, wrong('local')), /^capture: mode must be .*, not 'local'$/],
      [() => main.limited(device.createPool(), '1MiB').allocate(wrong(Symbol('s'))), /^bytes must be .*Symbol\(s\)$/],
      [() => main.tagged(device.createPool()).tryAllocate(wrong({ toString: 1 })), /^bytes must be .*an Object$/],
      [() => device.attachPool(wrong({})), /^attachPool: shared must come from pool\.share\(\)/],
    ]
    for (const [call, message] of calls) assert.throws(call, { name: 'TypeError', message })
  })

  it('of a communicator name the argument, and leave it as it was', async () => {
    using device = main.openDevice('simulated')
    const [comm] = await Communicator.joinAll([device])
    using array = device.createPool().upload(new Float32Array([1, 2]))
    const methods = ['allReduce', 'reduce', 'reduceScatter', 'allGather', 'broadcast', 'allToAll', 'send', 'receive']
    methods.push('register', 'deregister', 'createSymmetricArena', 'finished')
    for (const method of methods) {
      const call = (comm as unknown as Record<string, Exported>)[method].bind(comm) as Exported
      for (const value of HOSTILE) {
        const lists = [[], [value], [value, value], [value, value, value], [array, value], [array, array, value]]
        for (const args of lists) await expectNamed(`${method} with ${args.map(each => typeof each)}`, call, args)
      }
    }
    comm.allReduce(array, array)
    await comm.finished()
    assert.deepEqual(await array.read(), new Float32Array([1, 2]))
    await comm.close()
  })
})
