import type { DeviceChoice } from '../core/device/open.js'
import { UsageError } from './exit.js'

/** The device of a command: `--device`, else CUDA_MEMPOOL_DEVICE, else 'auto'. Throws UsageError for bad text. */
export function chosenDevice(option: string | undefined, env = process.env): DeviceChoice {
  const text = option ?? (env['CUDA_MEMPOOL_DEVICE'] || 'auto')
  if (text === 'auto' || text === 'simulated') return text
  if (/^\d+$/.test(text)) return Number(text)
  const source = option === undefined ? 'CUDA_MEMPOOL_DEVICE' : '--device'
  throw new UsageError(`${source}: '${text}' is no device; write auto, simulated or a number`)
}
