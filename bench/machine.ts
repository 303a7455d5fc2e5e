// The header of every result: the machine, the versions and the parameters.

import { execFileSync } from 'node:child_process'
import { mkdirSync, writeFileSync } from 'node:fs'
import os from 'node:os'
import { join } from 'node:path'
import type { Device } from '../src/core/device/device.js'

export interface Machine {
  readonly date: string
  readonly cpu: string
  readonly cores: number
  /** its version, and its start options, which may concern memory */
  readonly node: string
  readonly device: string
  readonly simulated: boolean
  readonly driverVersion: string
  readonly gpuDriver: string | null
}

export function machineOf(device: Device): Machine {
  const version = device.driver.cuDriverGetVersion()
  return {
    date: new Date().toISOString().slice(0, 10),
    cpu: os.cpus()[0]?.model ?? 'unknown',
    cores: os.cpus().length,
    node: [process.version, ...process.execArgv].join(' '),
    device: device.name,
    simulated: device.simulated,
    driverVersion: `${Math.floor(version / 1000)}.${Math.floor((version % 1000) / 10)}`,
    gpuDriver: device.simulated ? null : gpuDriver(),
  }
}

/** The header as one line of text; `ifSimulated` explains figures of a simulated device. */
export function headline(machine: Machine, ifSimulated: string): string {
  const { device, simulated, driverVersion, gpuDriver, cpu, cores, node } = machine
  const name = simulated ? `${device} (simulated: ${ifSimulated})` : device
  return `${name}, CUDA ${driverVersion}, driver ${gpuDriver ?? '–'}, ${cpu}, ${cores} cores, Node ${node}`
}

function gpuDriver(): string | null {
  try {
    const query = ['--query-gpu=driver_version', '--format=csv,noheader']
    return execFileSync('nvidia-smi', query, { encoding: 'utf8' }).trim().split('\n')[0]
  } catch {
    return null // the tool may be missing where the driver is not
  }
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b)
  return sorted[Math.floor(sorted.length / 2)]
}

/** Writes a result as NAME.json into the directory of `--save`, if given. */
export function save(directory: string | undefined, name: string, result: unknown): void {
  if (directory === undefined) return
  mkdirSync(directory, { recursive: true })
  writeFileSync(join(directory, `${name}.json`), `${JSON.stringify(result, null, 2)}\n`)
}
