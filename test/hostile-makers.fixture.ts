// Makes the pools of hostile programs, and things that work with pools.

import { KiB, MiB } from '../src/core/base/bytes.js'
import { HostPool } from '../src/core/pool/host/host-pool.js'
import { registerSimulatedKernel } from '../src/entries/simulated.js'
import { type Device, fallback, limited, type Pool, retrying, spillable, statistics, tagged } from '../src/index.js'
import type { Drawing } from './hostile-drawing.fixture.js'

/** By name: makes a pool or the like on a device, with any options, around any of the pools that there are. */
export function makersOf(
  drawing: Drawing,
  device: Device,
  things: readonly object[],
  keep: (made: object) => void,
): Readonly<Record<string, () => unknown>> {
  const limit = () => drawing.any(() => drawing.pick([1 * MiB, 2 * MiB, 8 * MiB, '4MiB', undefined]))
  const onChange = () => (drawing.below(4) === 0 ? drawing.callback('onGrow or onTrim') : undefined)
  const pools = things.filter(pool => !(pool instanceof HostPool))
  const one = () => drawing.any(() => (pools.length === 0 ? undefined : drawing.pick(pools))) as Pool
  return {
    createPool: () =>
      device.createPool(
        drawing.options({
          maxPoolBytes: limit(),
          backing: drawing.pick(['virtual', 'segments', 'auto', 'managed', 'registrable']),
          onGrow: onChange(),
          onTrim: onChange(),
          warnOnHeld: false,
          crossStreamReuse: drawing.pick([undefined, 'ordered', 'wait-before-grow']),
        }),
      ),
    debug: () => device.createPool({ maxPoolBytes: 4 * MiB, debug: true, warnOnHeld: false }),
    createArenaPool: () =>
      device.createArenaPool(
        drawing.options({
          bytes: limit() ?? MiB,
          maxBytes: drawing.pick([undefined, 8 * MiB]),
          backing: drawing.pick([undefined, 'registrable']),
        }),
      ),
    createBlockPool: () =>
      device.createBlockPool(
        drawing.options({
          blockBytes: drawing.any(() => 64 * KiB),
          count: drawing.any(() => 4),
          maxCount: drawing.pick([undefined, 8]),
        }),
      ),
    createHostPool: () => device.createHostPool(drawing.options({ maxPoolBytes: limit(), segmentBytes: 1 * MiB })),
    createPlainPool: () => device.createPlainPool(),
    createDriverPool: () => device.createDriverPool(drawing.options({ maxPoolBytes: limit() })),
    region: () => device.createArenaPool({ region: drawing.draw('memory') as never }),
    over: () =>
      device.createArenaPool({
        over: drawing.options({ ptr: drawing.any(() => 2 ** 41), byteLength: drawing.any(() => MiB) }),
      } as never),
    limited: () => limited(one(), limit() as never),
    tagged: () => tagged(one(), drawing.options({ limits: { one: 1 * MiB } })),
    statistics: () => statistics(one()),
    retrying: () => retrying(one(), drawing.callback('onFailure') as never),
    fallback: () => fallback(one(), one()),
    spillable: () => {
      const [pool, host] = [
        device.createPool({ maxPoolBytes: 4 * MiB }),
        device.createHostPool({ maxPoolBytes: 2 * MiB }),
      ]
      for (const each of [pool, host]) keep(each)
      const upstream = drawing.any(() =>
        drawing.below(2) === 0 ? pool : retrying(pool, drawing.callback('onFailure') as never),
      )
      return spillable(upstream as Pool, drawing.options({ host: drawing.any(() => host), maxPoolBytes: limit() }))
    },
    queue: () =>
      device.createArenaQueue(
        drawing.options({ bytes: 1 * MiB, count: drawing.any(() => 2), maxWaiting: drawing.any(() => 3) }) as never,
      ),
    kernel: () => kernelOf(drawing, device),
    growable: () =>
      device.createGrowableBuffer(
        drawing.options({
          bytes: drawing.any(() => 100_000),
          capacityBytes: limit(),
          stream: drawing.draw('stream', device),
        }),
      ),
  }
}

function kernelOf(drawing: Drawing, device: Device): object {
  const name = `hostile_${drawing.below(3)}`
  registerSimulatedKernel(name, () => {
    if (drawing.below(40) === 0) drawing.callback('kernel')()
  })
  return device
    .loadModule(`.version 6.3\n.target sm_52\n.address_size 64\n.visible .entry ${name}() { ret; }\n`)
    .kernel(name)
}
