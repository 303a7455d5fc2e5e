// The command line that the benchmarks have in common.

import { basename } from 'node:path'
import { Command } from 'commander'
import { chosenDevice } from '../src/cli/device-option.js'
import type { Device } from '../src/device/device.js'
import { type DeviceChoice, openDevice } from '../src/device/open.js'

export interface BenchOptions {
  readonly device?: string
  readonly smoke?: boolean
  readonly save?: string
}

/** `--smoke`, `--save` and `--help`, to which a benchmark adds its own; `about` says what it measures. */
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

/** What was said on the command line. */
export function optionsOf<Options extends BenchOptions>(program: Command): Options {
  return program.parse().opts<Options>()
}

/** The device that was asked for. */
export function deviceOf(program: Command): Device {
  return openedBy(program, openDevice)
}

/** What `open` makes of the device that was asked for; where it cannot, one line says why and the program ends. */
export function openedBy<Opened>(program: Command, open: (choice: DeviceChoice) => Opened): Opened {
  try {
    return open(chosenDevice(program.opts<BenchOptions>().device))
  } catch (error) {
    return program.error(`error: ${(error as Error).message}`, { exitCode: 2 })
  }
}
