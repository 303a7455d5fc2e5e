import { type DeviceChoice, parseDeviceChoice } from '../core/device/open.js'
import { UsageError } from './exit.js'

/** The device of a command: `--device`, else CUDA_MEMPOOL_DEVICE, else 'auto'. Throws UsageError for bad text. */
export function chosenDevice(option: string | undefined, env = process.env): DeviceChoice {
  const variable = env['CUDA_MEMPOOL_DEVICE'] || undefined
  try {
    return parseDeviceChoice(option ?? variable ?? 'auto')
  } catch (error) {
    const source = option === undefined ? 'CUDA_MEMPOOL_DEVICE' : '--device'
    throw new UsageError(`${source}: ${(error as Error).message}`)
  }
}
