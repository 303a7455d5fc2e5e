// Host time of the pools in an ordinary program: one file with a plain loop for each kind of pool, run one after
// another in one process, so that the library's functions have seen all kinds before the last loops. Nothing is
// compiled apart, unlike in bench/allocate.ts and bench/pools.ts. Compare rows with the bare pair of the same run.
// Run: node dist/bench/ordinary.js [--device D] [--smoke] [--json] [--save DIR]

import { type Device, type DeviceBuffer, KiB, limited, MiB, statistics, tagged } from '../src/index.js'
import { type Batch, Core, quietText } from './core-noise.js'
import { headline, machineOf, save } from './machine.js'
import { type BenchOptions, deviceBenchmark, deviceOf, optionsOf } from './options.js'

const program = deviceBenchmark('host time of every kind of pool in one ordinary program').option(
  '--json',
  'print the result as JSON',
)
const values = optionsOf<BenchOptions & { readonly json?: boolean }>(program)
const BYTES = 4 * KiB
const BATCHES = values.smoke ? 3 : 40
const PAIRS = values.smoke ? 1000 : 200_000
/** Allocations between two resets of an arena, and buffers that are held at a time. */
const HELD = 16
/** The addresses that the loops read, kept so that the compiler does not drop them. */
export let sum = 0

interface Row {
  readonly name: string
  /** makes `pairs` allocations and their frees */
  readonly run: (pairs: number) => void
}

// Loops are deliberately alike: each has call sites of its own, as in a program, which the compiler judges apart.
function rowsOf(device: Device): Row[] {
  const stream = device.createStream()
  const pool = device.createPool()
  const limit = limited(device.createPool(), 64 * MiB)
  const tags = tagged(device.createPool())
  const counting = statistics(device.createPool())
  const arena = device.createArenaPool({ bytes: HELD * BYTES })
  const blocks = device.createBlockPool({ blockBytes: BYTES, count: HELD })
  const shared = device.createSharedPool()
  const held: DeviceBuffer[] = []
  const pair = (pairs: number) => {
    for (let index = 0; index < pairs; index++) pool.allocate(BYTES, stream).free()
  }
  return [
    { name: 'caching pool', run: pair },
    {
      name: 'try … finally',
      run: pairs => {
        for (let index = 0; index < pairs; index++) {
          const buffer = pool.allocate(BYTES, stream)
          try {
            sum++
          } finally {
            buffer.free()
          }
        }
      },
    },
    {
      name: 'caching pool, its address read',
      run: pairs => {
        for (let index = 0; index < pairs; index++) {
          const buffer = pool.allocate(BYTES, stream)
          sum += buffer.ptr
          buffer.free()
        }
      },
    },
    {
      name: `${HELD} held`,
      run: pairs => {
        for (let index = 0; index < pairs; index += HELD) {
          for (let count = 0; count < HELD; count++) held.push(pool.allocate(BYTES, stream))
          while (held.length > 0) held.pop()!.free()
        }
      },
    },
    {
      name: 'limited',
      run: pairs => {
        for (let index = 0; index < pairs; index++) limit.allocate(BYTES, stream).free()
      },
    },
    {
      name: 'statistics',
      run: pairs => {
        for (let index = 0; index < pairs; index++) counting.allocate(BYTES, stream).free()
      },
    },
    {
      name: 'tagged, outside of scopes',
      run: pairs => {
        for (let index = 0; index < pairs; index++) tags.allocate(BYTES, stream).free()
      },
    },
    {
      name: 'tagged, in a scope',
      run: pairs =>
        tags.inScope('weights', () => {
          for (let index = 0; index < pairs; index++) tags.allocate(BYTES, stream).free()
        }),
    },
    {
      name: `arena, a reset each ${HELD}`,
      run: pairs => {
        for (let index = 0; index < pairs; index += HELD) {
          for (let count = 0; count < HELD; count++) arena.allocate(BYTES, stream)
          arena.reset(stream)
        }
      },
    },
    {
      name: 'block pool',
      run: pairs => {
        for (let index = 0; index < pairs; index++) blocks.allocate(BYTES, stream).free()
      },
    },
    {
      name: 'shared pool',
      run: pairs => {
        for (let index = 0; index < pairs; index++) shared.allocate(BYTES, stream).free()
      },
    },
    { name: 'caching pool again, the same loop', run: pair },
    {
      name: 'caching pool again, another loop',
      run: pairs => {
        for (let index = 0; index < pairs; index++) pool.allocate(BYTES, stream).free()
      },
    },
    {
      name: 'try … finally again, another loop',
      run: pairs => {
        for (let index = 0; index < pairs; index++) {
          const buffer = pool.allocate(BYTES, stream)
          try {
            sum++
          } finally {
            buffer.free()
          }
        }
      },
    },
  ]
}

const device = deviceOf(program)
const core = new Core()
const measured = rowsOf(device).map(({ name, run }) => {
  const batches: Batch<number>[] = []
  for (let batch = 0; batch <= BATCHES; batch++) {
    const one = core.batch(() => {
      const start = performance.now()
      run(PAIRS)
      return ((performance.now() - start) * 1e6) / PAIRS
    })
    if (batch > 0) batches.push(one) // the first one warms up
  }
  return { name, batches }
})
const results = measured.map(({ name, batches }) => ({ name, ...core.figures(batches, 2, ns => ns) }))
const [bare] = results

const machine = machineOf(device)
const parameters = { batches: BATCHES, pairs: PAIRS, bytes: BYTES, held: HELD }
const result = { machine, parameters, control: core.control(), results }
save(values.save, 'ordinary', result)
if (values.json) console.log(JSON.stringify(result, null, 2))
else {
  console.log(headline(machine, 'all rows are host time of this library'))
  console.log(`4 KiB, ${BATCHES} batches of ${PAIRS} pairs, ns per allocation with its free`)
  console.log(core.legend())
  const line = (name: string, ...columns: string[]) =>
    console.log(`  ${name.padEnd(36)}${columns.map(column => column.padStart(14)).join('')}`)
  line('', 'median', 'least', 'of the first', 'quiet')
  for (const { name, medianNs, leastNs, ...quiet } of results) {
    const ratio = (leastNs / bare.leastNs).toFixed(2)
    line(name, medianNs.toFixed(1), leastNs.toFixed(1), ratio, quietText(quiet, 1))
  }
}
device.close()
