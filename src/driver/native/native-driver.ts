// The driver contract over libcuda. The functions are in calls/, one file a chapter; library.ts opens libcuda,
// table.ts lists its symbols, and marshalling-buffer.ts holds arguments and results. Opened by device/open.ts and
// shared-driver.ts.
//
// A function that the library does not have is refused when it is called, so an old driver serves all functions that
// it has. After a fault, calls that act on the current context throw DeviceLostError. Calls that name a device or a
// context do not, because another device of the process still works.

import type { Driver } from '../driver.js'
import { KernelCalls } from './calls/kernel-calls.js'
import { openLibrary } from './library.js'

/** A driver for the GPUs of this machine. Each thread that calls libcuda opens its own. */
export class NativeDriver extends KernelCalls implements Driver {
  readonly simulated = false
  /** null: a clock measures a real GPU */
  readonly modelledSeconds = null

  /** Opens libcuda; throws NoDeviceError if the machine has no CUDA driver. No device is touched before `cuInit`. */
  static open(): NativeDriver {
    return new NativeDriver(openLibrary())
  }
}
