import { describe } from '../base/bytes.js'
import { PoolError } from '../base/errors.js'
import type { Context } from '../driver/context.js'
import { relaxed } from '../order/relaxed.js'
import type { Stream } from '../order/stream.js'
import { type DeclaredKernel, declaredAs } from './declarations.js'
import { Kernel } from './kernel.js'
import { type KernelSignature, kernelsOf } from './ptx.js'

/** What a compiler has made of source code. */
export interface CompiledCode {
  /** where the kernels and their parameters are declared */
  readonly ptx: string
  /** what the driver loads: machine code, or the PTX itself */
  readonly image: string | Uint8Array
  /** the name in the PTX of each kernel that is asked for by another one */
  readonly names: ReadonlyMap<string, string>
  /** the kernels as the source has them, since code has lost the names of parameters */
  readonly declared: readonly DeclaredKernel[]
  /** what the compiler had to say, warnings for example */
  readonly log: string
}

/** Device code that is loaded. Made by the device: `device.loadModule(ptx)`, `device.compileKernels(source)`. */
export class Module implements Disposable {
  /** warnings of the compiler; empty for PTX */
  readonly log: string
  private handle: number
  private readonly signatures: readonly KernelSignature[]
  private readonly names: ReadonlyMap<string, string>
  private readonly declared: readonly DeclaredKernel[]

  /** Throws FormatError for text that is no PTX, and CudaError with the compiler's log when the driver refuses it. */
  constructor(
    /** @internal */
    readonly context: Context,
    private readonly defaultStream: Stream,
    code: string | CompiledCode,
  ) {
    if (typeof code !== 'string' && typeof code?.ptx !== 'string') {
      throw new TypeError(`loadModule: ptx must be PTX text, not ${describe(code)}`)
    }
    const { ptx, image, names, declared, log } = typeof code === 'string' ? writtenCode(code) : code
    this.signatures = kernelsOf(ptx)
    this.names = names
    this.declared = declared
    this.log = log
    const driver = context.activate()
    this.handle = relaxed(driver, () => driver.cuModuleLoadData(image))
  }

  /** A kernel by its name; throws RangeError naming the ones there are. */
  kernel(name: string): Kernel {
    const handle = this.openHandle('kernel')
    const inCode = this.names.get(name) ?? name
    const signature = this.signatures.find(candidate => candidate.name === inCode)
    if (signature === undefined) {
      const named = [...this.names.values()]
      const others = this.signatures.map(candidate => candidate.name).filter(each => !named.includes(each))
      const all = [...this.names.keys(), ...others].join(', ')
      throw new RangeError(`kernel: there is no '${name}' in this module; it has ${all}${mangledHint(others)}`)
    }
    const entry = this.context.activate().cuModuleGetFunction(handle, inCode)
    return new Kernel(this, this.asDeclared(signature, name), entry, this.defaultStream)
  }

  /** Unloads the code; its kernels cannot be launched any more. A second close does nothing but what the driver refused at the first. */
  close(): void {
    const { handle, context } = this
    this.handle = 0
    if (handle === 0) context.destroyRest()
    else if (!context.released) context.destroy(driver => relaxed(driver, () => driver.cuModuleUnload(handle)))
  }

  /** The same as `close()`. */
  [Symbol.dispose](): void {
    this.close()
  }

  /** The signature in the words of the source, where that is known. */
  private asDeclared(signature: KernelSignature, name: string): KernelSignature {
    const declared = this.declared.find(each => each.name === declaredAs(name))
    if (declared?.parameters.length !== signature.parameters.length) return { ...signature, name }
    const parameters = signature.parameters.map((each, index) => ({ ...each, name: declared.parameters[index].name }))
    return { ...signature, name, parameters }
  }

  /** Refuses a closed module in the name of `call`. */
  openHandle(call: string): number {
    if (this.handle === 0) throw new PoolError(`${call}: the module is closed; load it again`)
    return this.handle
  }
}

function writtenCode(ptx: string): CompiledCode {
  return { ptx, image: ptx, names: new Map(), declared: [], log: '' }
}

function mangledHint(names: readonly string[]): string {
  if (!names.some(name => name.startsWith('_Z'))) return ''
  return '. Names that begin with _Z are mangled: declare the kernel extern "C", or name it in the option kernels'
}
