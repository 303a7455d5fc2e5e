import { type DeviceChoice, parseDeviceChoice } from '../device/open.js'
import { UsageError } from './exit.js'

/** The device that a command works on: from `--device`, or else CUDA_MEMPOOL_DEVICE, or else 'auto'. */
export function chosenDevice(option: string | undefined, env = process.env): DeviceChoice {
  const variable = env['CUDA_MEMPOOL_DEVICE'] || undefined
  try {
    return parseDeviceChoice(option ?? variable ?? 'auto')
  } catch (error) {
    const source = option === undefined ? 'CUDA_MEMPOOL_DEVICE' : '--device'
    throw new UsageError(`${source}: ${(error as Error).message}`)
  }
}
