import { printableJson } from '../core/base/shown-text.js'
import { deviceText } from '../recordings/report/device-text.js'
import { chosenDevice } from './device-option.js'
import { inspectDevice } from './inspect-device.js'
import { print } from './terminal.js'

export interface InfoOptions {
  readonly device?: string
  readonly json?: boolean
}

/** `cuda-mempool info`: the devices, and the features that work on one. */
export function info(options: InfoOptions, version: string): void {
  const report = inspectDevice(chosenDevice(options.device), version)
  print(options.json ? printableJson(report) : style => deviceText(report, style))
}
