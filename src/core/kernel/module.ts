import { OutOfRangeError } from '../base/argument-errors.js'
import { disposeOf } from '../base/disposal.js'
import { PoolError } from '../base/errors.js'
import { checkOptionNames } from '../base/option-names.js'
import { showAsText } from '../base/readable.js'
import type { Context } from '../driver/context.js'
import type { Driver } from '../driver/driver.js'
import type { Holding } from '../order/holding.js'
import { relaxed } from '../order/relaxed.js'
import type { Stream } from '../order/stream.js'
import { type DeclaredKernel, declaredAs } from './declarations.js'
import { checkedSignature, declaredSignature } from './declared-signature.js'
import { explainedLoad, readImage } from './image.js'
import { Kernel, type LoadedCode } from './kernel.js'
import { type KernelSignature, kernelsOf } from './ptx.js'

/** The result of compiling source code. */
export interface CompiledCode {
  /** declares the kernels and their parameters */
  readonly ptx: string
  /** loaded by the driver: machine code, or the PTX itself */
  readonly image: string | Uint8Array
  /** for each kernel that C++ names by an expression: its name in the PTX */
  readonly names: ReadonlyMap<string, string>
  /** the kernels as the source declares them, since code has lost the names of parameters */
  readonly declared: readonly DeclaredKernel[]
  /** messages of the compiler, such as warnings */
  readonly log: string
}

/** Facts about a kernel that its code may lack. */
export interface KernelOptions {
  /**
   * the parameters as the source declares them, such as `'float *x, float factor, int n'`. A cubin does not tell
   * integers from floats, so numbers are refused there without this. Their count and sizes must be those of the code.
   */
  readonly parameters?: string
}

/** Loaded device code. Made by the device: `device.loadModule(image)`, `device.compileKernels(source)`. */
export class Module implements LoadedCode, Disposable {
  /** warnings of the compiler; empty for a loaded image */
  readonly log: string
  private handle: number
  /** what captures and graphs with launches of the kernels hold, and how many do */
  private readonly holding: Holding = { lost: false, asleep: false, release: () => this.letGo() }
  private holders = 0
  /** the driver's handle of closed code that graphs still launch; 0 for none */
  private heldHandle = 0
  private readonly signatures: readonly KernelSignature[]
  private readonly names: ReadonlyMap<string, string>
  private readonly declared: readonly DeclaredKernel[]

  /** Throws FormatError for an image that cannot be read, and CudaError with the compiler's log if it is refused. */
  constructor(
    /** @internal */
    readonly context: Context,
    private readonly defaultStream: Stream,
    code: string | Uint8Array | CompiledCode,
  ) {
    const compiled = isCompiled(code)
    const { image, signatures } = compiled ? { image: code.image, signatures: kernelsOf(code.ptx) } : readImage(code)
    this.signatures = signatures
    this.names = compiled ? code.names : new Map()
    this.declared = compiled ? code.declared : []
    this.log = compiled ? code.log : ''
    const driver = context.activate()
    try {
      this.handle = relaxed(driver, () => driver.cuModuleLoadData(image))
    } catch (error) {
      throw explainedLoad(error, image, context)
    }
  }

  /**
   * The kernel of that name. Throws RangeError, which lists the module's kernels, for an unknown name, TypeError for
   * parameters that are not those of the code, and PoolError once closed.
   */
  kernel(name: string, options: KernelOptions = {}): Kernel {
    const handle = this.openHandle('kernel')
    checkOptionNames('kernel', options, ['parameters'])
    const inCode = this.names.get(name) ?? name
    const signature = this.signatures.find(candidate => candidate.name === inCode)
    if (signature === undefined) {
      const named = [...this.names.values()]
      const others = this.signatures.map(candidate => candidate.name).filter(each => !named.includes(each))
      const all = [...this.names.keys(), ...others].join(', ')
      throw new OutOfRangeError(`kernel: there is no '${name}' in this module; it has ${all}${mangledHint(others)}`)
    }
    const { parameters } = options
    const known = parameters === undefined ? this.asDeclared(signature, name) : checkedSignature(signature, parameters)
    const entry = this.context.activate().cuModuleGetFunction(handle, inCode)
    return new Kernel(this, { ...known, name }, entry, this.defaultStream)
  }

  /**
   * Unloads the code; its kernels can no longer be launched. Graphs with launches of them still can: the code stays
   * loaded until those are closed. A second close only repeats what the driver refused at the first.
   */
  close(): void {
    const { handle, context } = this
    this.handle = 0
    if (handle === 0) context.destroyRest()
    else if (this.holders > 0) this.heldHandle = handle
    else if (!context.released) context.destroy(driver => unload(driver, handle))
  }

  /**
   * A launch is about to be captured: the code stays loaded until the capture has ended, and its graph is closed.
   * @internal
   */
  holdFor(holdings: Set<Holding>): void {
    if (holdings.has(this.holding)) return
    holdings.add(this.holding)
    this.holders++
  }

  private letGo(): void {
    const { heldHandle, context } = this
    if (--this.holders > 0 || heldHandle === 0 || context.released) return
    this.heldHandle = 0
    context.discard(driver => unload(driver, heldHandle))
  }

  /** `close()` at the end of a `using` block. Where that throws, this warns. */
  [Symbol.dispose](): void {
    disposeOf(this, () => this.close())
  }

  /** The signature with the source's names, if they are known. */
  private asDeclared(signature: KernelSignature, name: string): KernelSignature {
    const declared = this.declared.find(each => each.name === declaredAs(name))
    if (declared?.parameters.length !== signature.parameters.length) return signature
    return declaredSignature(signature, declared.parameters)
  }

  /** The driver's handle. Throws PoolError, in the name of `call`, for a closed module. */
  openHandle(call: string): number {
    if (this.handle === 0) throw new PoolError(`${call}: the module is closed; load it again`)
    return this.handle
  }

  /** One line for people, such as `Module { kernels scale, sum }`; console.log shows it. */
  toString(): string {
    return this.handle === 0 ? 'Module { closed }' : `Module { kernels ${this.kernelNames.join(', ')} }`
  }

  /** The plain values that JSON.stringify writes. */
  toJSON(): object {
    return { device: this.context.ordinal, kernels: this.kernelNames, closed: this.handle === 0 }
  }

  /** The names by which `kernel` knows the kernels: the source's, or the code's. */
  private get kernelNames(): string[] {
    const named = new Map([...this.names].map(([name, inCode]) => [inCode, name]))
    return this.signatures.map(({ name }) => named.get(name) ?? name)
  }
}

function unload(driver: Driver, handle: number): void {
  relaxed(driver, () => driver.cuModuleUnload(handle))
}

function isCompiled(code: string | Uint8Array | CompiledCode): code is CompiledCode {
  return typeof (code as CompiledCode | null)?.ptx === 'string'
}

function mangledHint(names: readonly string[]): string {
  if (!names.some(name => name.startsWith('_Z'))) return ''
  return '. Names that begin with _Z are mangled: declare the kernel extern "C", or name it in the option kernels'
}

showAsText(Module)
