import { OutOfRangeError, WrongTypeError } from '../base/argument-errors.js'
import { describe } from '../base/bytes.js'
import { disposeOf } from '../base/disposal.js'
import { PoolError } from '../base/errors.js'
import { showAsText } from '../base/readable.js'
import type { Context } from '../driver/context.js'
import type { Driver } from '../driver/driver.js'
import type { Holding } from '../order/holding.js'
import { relaxed } from '../order/relaxed.js'
import type { Stream } from '../order/stream.js'
import { type DeclaredKernel, declaredAs, smallFloatOf } from './declarations.js'
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

/** Loaded device code. Made by the device: `device.loadModule(ptx)`, `device.compileKernels(source)`. */
export class Module implements LoadedCode, Disposable {
  /** warnings of the compiler; empty for PTX */
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

  /** Throws FormatError for text other than PTX, and CudaError with the compiler's log if the driver refuses it. */
  constructor(
    /** @internal */
    readonly context: Context,
    private readonly defaultStream: Stream,
    code: string | CompiledCode,
  ) {
    if (typeof code !== 'string' && typeof code?.ptx !== 'string') {
      throw new WrongTypeError(`loadModule: ptx must be PTX text, not ${describe(code)}`)
    }
    const { ptx, image, names, declared, log } = typeof code === 'string' ? writtenCode(code) : code
    this.signatures = kernelsOf(ptx)
    this.names = names
    this.declared = declared
    this.log = log
    const driver = context.activate()
    this.handle = relaxed(driver, () => driver.cuModuleLoadData(image))
  }

  /**
   * The kernel of that name. Throws RangeError, which lists the module's kernels, for an unknown name, and PoolError
   * once closed.
   */
  kernel(name: string): Kernel {
    const handle = this.openHandle('kernel')
    const inCode = this.names.get(name) ?? name
    const signature = this.signatures.find(candidate => candidate.name === inCode)
    if (signature === undefined) {
      const named = [...this.names.values()]
      const others = this.signatures.map(candidate => candidate.name).filter(each => !named.includes(each))
      const all = [...this.names.keys(), ...others].join(', ')
      throw new OutOfRangeError(`kernel: there is no '${name}' in this module; it has ${all}${mangledHint(others)}`)
    }
    const entry = this.context.activate().cuModuleGetFunction(handle, inCode)
    return new Kernel(this, this.asDeclared(signature, name), entry, this.defaultStream)
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
    if (declared?.parameters.length !== signature.parameters.length) return { ...signature, name }
    const parameters = signature.parameters.map((each, index) => {
      const { [index]: parameter } = declared.parameters
      const kind = each.byteLength === 2 ? (smallFloatOf(parameter) ?? each.kind) : each.kind
      return { ...each, name: parameter.name, kind }
    })
    return { ...signature, name, parameters }
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

function writtenCode(ptx: string): CompiledCode {
  return { ptx, image: ptx, names: new Map(), declared: [], log: '' }
}

function mangledHint(names: readonly string[]): string {
  if (!names.some(name => name.startsWith('_Z'))) return ''
  return '. Names that begin with _Z are mangled: declare the kernel extern "C", or name it in the option kernels'
}

showAsText(Module)
