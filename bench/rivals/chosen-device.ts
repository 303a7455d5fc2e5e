// Prints the machine and the device that was chosen, as a line of JSON, for run.ts. It is a program of its own: while a
// process that has opened a GPU lives, the driver initialises itself sooner in others, and our warm-up has less time.
// Run: node dist/bench/rivals/chosen-device.js [--device D]

import { Command } from 'commander'
import { type Machine, machineOf } from '../machine.js'
import { deviceOf } from '../options.js'

export interface Chosen {
  readonly machine: Machine
  /** as programs take it on their command lines */
  readonly choice: string
}

const program = new Command('chosen-device.js').option('--device <which>').parse()
const device = deviceOf(program)
const chosen: Chosen = {
  machine: machineOf(device),
  choice: device.simulated ? 'simulated' : String(device.ordinal),
}
console.log(JSON.stringify(chosen))
device.close()
