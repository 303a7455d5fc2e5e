import { describe } from '../base/bytes.js'
import { PoolError } from '../base/errors.js'
import type { Context } from '../driver/context.js'
import type { Stream } from '../order/stream.js'
import { Kernel } from './kernel.js'
import { type KernelSignature, kernelsOf } from './ptx.js'

/** Device code loaded from PTX. Made by the device: `device.loadModule(ptx)`. */
export class Module implements Disposable {
  private handle: number
  private readonly signatures: readonly KernelSignature[]

  /** Throws FormatError for text that is no PTX, and CudaError with the compiler's log when the driver refuses it. */
  constructor(
    readonly context: Context,
    private readonly defaultStream: Stream,
    ptx: string,
  ) {
    if (typeof ptx !== 'string') throw new TypeError(`loadModule: ptx must be PTX text, not ${describe(ptx)}`)
    this.signatures = kernelsOf(ptx)
    this.handle = context.activate().cuModuleLoadData(ptx)
  }

  /** A kernel by its name; throws RangeError naming the ones there are. */
  kernel(name: string): Kernel {
    const handle = this.openHandle('kernel')
    const signature = this.signatures.find(candidate => candidate.name === name)
    if (signature === undefined) {
      const names = this.signatures.map(candidate => candidate.name).join(', ')
      throw new RangeError(`kernel: there is no '${name}' in this module; it has ${names}`)
    }
    const entry = this.context.activate().cuModuleGetFunction(handle, name)
    return new Kernel(this, signature, entry, this.defaultStream)
  }

  /** Unloads the code; its kernels cannot be launched any more. A second close does nothing, nor does one after the device's. */
  close(): void {
    if (this.handle === 0 || this.context.released) return
    const handle = this.handle
    this.handle = 0
    this.context.giveBack(driver => driver.cuModuleUnload(handle))
  }

  [Symbol.dispose](): void {
    this.close()
  }

  /** Refuses a closed module in the name of `call`. */
  openHandle(call: string): number {
    if (this.handle === 0) throw new PoolError(`${call}: the module is closed; load it again`)
    return this.handle
  }
}
