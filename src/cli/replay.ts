// `cuda-mempool replay`: reads recordings, replays them, and prints the memory that each policy needed. All files are
// read before the first replay, so that a bad file is refused before any output.

import { NoDeviceError } from '../core/base/errors.js'
import type { Device } from '../core/device/device.js'
import { type DeviceChoice, openDevice } from '../core/device/open.js'
import { reportJson } from '../recordings/report/export/report-json.js'
import { replayText } from '../recordings/report/replay-text.js'
import { pytorchSettingsOf } from '../recordings/trace/pytorch/named-settings.js'
import { replay } from '../recordings/trace/replay.js'
import { replayDevices } from '../recordings/trace/replay-devices.js'
import type { ReplayOptions } from '../recordings/trace/replay-options.js'
import {
  DEFAULT_POLICIES,
  type NamedPolicy,
  POLICIES,
  type Policy,
  type ReplayReport,
} from '../recordings/trace/replay-result.js'
import type { Trace } from '../recordings/trace/trace.js'
import { chosenDevice } from './device-option.js'
import { STATUS, UsageError } from './exit.js'
import { checkReplayed, parseCondition, sayHeld } from './fail-if.js'
import {
  capacityOf,
  printNext,
  readFiles,
  readOption,
  sayContradictions,
  wholeNumber,
  withProgressOn,
} from './recording-input.js'
import { print, printJson } from './terminal.js'

/** The options as text, from the command line. */
export interface ReplayArguments {
  readonly device?: string
  readonly gpu?: string
  readonly policy?: string
  readonly capacity?: string
  readonly lag?: string
  readonly repeat?: string
  readonly timing?: boolean
  readonly verify?: boolean
  readonly json?: boolean
  readonly failIf?: readonly string[]
}

/** Before the settings of PyTorch in the name of a policy. */
const SETTINGS = 'pytorch:'

/** Replays all files and returns the exit status. */
export async function replayFiles(files: readonly string[], given: ReplayArguments): Promise<number> {
  const options = optionsOf(given)
  const conditions = (given.failIf ?? []).map(parseCondition)
  checkReplayed(conditions, options.policies ?? DEFAULT_POLICIES)
  const choice = chosenDevice(given.device)
  // Held until the end: a GPU's context takes 0.25 s each time its last user releases it.
  using held = openForReplay(choice)
  const opener = (trace: Trace) =>
    replayDevices(trace, held.simulated ? 'simulated' : held.ordinal, options.capacityBytes)
  const traces = await readFiles(files, given.gpu)
  sayContradictions(traces)
  let status: number = STATUS.done
  for (const [index, trace] of traces.entries()) {
    const report = await withProgressOn(trace, onProgress => replay(trace, opener(trace), { ...options, onProgress }))
    if (index > 0 && !given.json) print('')
    if (given.json) printJson(reportJson(report))
    else print(style => replayText(report, style))
    if (sayHeld(conditions, report)) status = STATUS.conditionHeld
    else if (failed(report) && status === STATUS.done) status = STATUS.failedReplay
  }
  if (!given.json) printNext('report', files)
  return status
}

/** A replay needs no GPU, so 'auto' does not refuse a machine without koffi. */
function openForReplay(choice: DeviceChoice): Device {
  try {
    return openDevice(choice)
  } catch (error) {
    if (choice !== 'auto' || !(error instanceof NoDeviceError)) throw error
    return openDevice('simulated')
  }
}

/** Whether cuda-mempool could not serve an allocation, or lost contents. */
function failed({ runs }: ReplayReport): boolean {
  const ours = runs.find(run => run.policy === 'cuda-mempool')
  return ours !== undefined && (ours.failures > 0 || (ours.verified?.damaged ?? 0) > 0)
}

function optionsOf({ policy, capacity, lag, repeat, timing, verify }: ReplayArguments): ReplayOptions {
  return {
    latency: timing ?? false,
    // With a capacity, the question is whether it is enough.
    leastCapacity: capacity === undefined,
    ...(policy === undefined ? {} : { policies: policiesOf(policy) }),
    ...(capacity === undefined ? {} : { capacityBytes: capacityOf(capacity) }),
    ...(lag === undefined ? {} : { lag: lagOf(lag) }),
    ...(repeat === undefined ? {} : { repeat: wholeNumber('--repeat', repeat, 1) }),
    ...(verify ? { verify } : {}),
  }
}

function lagOf(text: string): number {
  return text === 'never' ? Infinity : wholeNumber('--lag', text, 0, { alternative: ", or 'never'" })
}

/** Policies by their names, separated by commas. Throws UsageError for others. */
export function policiesOf(list: string): Policy[] {
  const names: string[] = []
  for (const part of list.split(',').map(name => name.trim())) {
    // Settings have commas between them, too.
    const continues = names.at(-1)?.startsWith(SETTINGS) && part.includes(':') && !part.startsWith(SETTINGS)
    if (continues) names[names.length - 1] += `,${part}`
    else names.push(part)
  }
  const isOfPytorch = (name: string) => readOption('--policy', () => pytorchSettingsOf(name)) !== null
  const unknown = names.find(name => !isOfPytorch(name) && !POLICIES.includes(name as NamedPolicy))
  if (unknown !== undefined) {
    throw new UsageError(`--policy: there is no '${unknown}'; there are ${POLICIES.join(', ')}, and pytorch:SETTINGS`)
  }
  return [...new Set(names)] as Policy[]
}
