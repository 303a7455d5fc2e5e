// The common command line of the benchmarks.

import { basename } from 'node:path'
import { Command, InvalidArgumentError } from 'commander'
import { chosenDevice } from '../src/cli/device-option.js'
import type { Device } from '../src/core/device/device.js'
import { type DeviceChoice, openDevice, openDevices } from '../src/core/device/open.js'

export interface BenchOptions {
  readonly device?: string
  readonly smoke?: boolean
  readonly save?: string
}

/** `--smoke`, `--save` and `--help`, to which a benchmark adds its own options; `about` describes the benchmark. */
export function benchmark(about: string): Command {
  return new Command(basename(process.argv[1]))
    .description(about)
    .option('--smoke', 'a few steps, only to see that it runs')
    .option('--save <dir>', 'write the result there, as JSON')
    .helpOption('--help', 'show this')
}

/** The same with `--device`. */
export function deviceBenchmark(about: string): Command {
  return benchmark(about).option('--device <which>', "auto, simulated or a GPU's number; default CUDA_MEMPOOL_DEVICE")
}

/** The values of the command line. */
export function optionsOf<Options extends BenchOptions>(program: Command): Options {
  return program.parse().opts<Options>()
}

/** The chosen device. */
export function deviceOf(program: Command): Device {
  return openedBy(program, openDevice)
}

/** The result of `open` for the chosen device; on failure, prints one line with the reason and ends the program. */
export function openedBy<Opened>(program: Command, open: (choice: DeviceChoice) => Opened): Opened {
  try {
    return open(chosenDevice(program.opts<BenchOptions>().device))
  } catch (error) {
    return program.error(`error: ${(error as Error).message}`, { exitCode: 2 })
  }
}

/** Two devices: the GPUs of `--device 0,1`, or the first two of another choice; null if there are fewer than two. */
export function devicePairOf(program: Command): readonly [Device, Device] | null {
  const pair = /^(\d+),(\d+)$/.exec(program.opts<BenchOptions>().device ?? '')
  if (pair !== null) {
    try {
      const first = openDevice(Number(pair[1]))
      return [first, openDevice(first.driver, Number(pair[2]))]
    } catch (error) {
      return program.error(`error: ${(error as Error).message}`, { exitCode: 2 })
    }
  }
  const [first, second, ...others] = openedBy(program, choice =>
    typeof choice === 'number' ? openDevices().slice(choice) : openDevices(choice),
  )
  for (const device of others) device.close()
  return second === undefined ? null : [first, second]
}

/** The value of an option that takes a whole number from 1 on. */
export function count(text: string): number {
  if (!/^[1-9]\d{0,8}$/.test(text)) throw new InvalidArgumentError('Write a whole number from 1 on.')
  return Number(text)
}
