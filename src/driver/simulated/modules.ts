// Loaded modules and the kernels in them: what cuModuleLoadData accepts, and how a launch finds its TypeScript function.

import { RESULT } from '../constants.js'
import type { KernelArguments, LaunchShape } from '../driver.js'
import type { CallGate } from './call-gate.js'
import type { SimulatedContext } from './context.js'
import { HandleTable } from './handle-table.js'
import { findSimulatedKernel, LaunchArguments, launchExcess, parsePtxEntries, type SimulatedKernel } from './kernels.js'

const ELF_MAGIC = '\x7fELF'

interface Module {
  readonly context: SimulatedContext
  /** the parameter count of each entry */
  readonly entries: ReadonlyMap<string, number>
}

interface LoadedKernel {
  readonly module: Module
  readonly name: string
  readonly kernel: SimulatedKernel
}

export class Modules {
  private readonly modules = new HandleTable<Module>(0x6000_0000)
  private readonly kernels = new HandleTable<LoadedKernel>(0x7000_0000)

  constructor(private readonly gate: CallGate) {}

  load(context: SimulatedContext, image: string | Uint8Array): number {
    const text = typeof image === 'string' ? image : new TextDecoder().decode(image)
    if (text.startsWith(ELF_MAGIC)) {
      throw this.gate.refuse(RESULT.CUDA_ERROR_NOT_SUPPORTED, 'a simulated device loads PTX text, no cubin')
    }
    const entries = parsePtxEntries(text)
    if (entries === null) {
      throw this.gate.refuse(RESULT.CUDA_ERROR_INVALID_PTX, 'no PTX text with a .version line and an .entry')
    }
    return this.modules.add({ context, entries })
  }

  unload(handle: number): void {
    const module = this.modules.remove(handle)
    if (module === undefined) throw this.gate.refuse(RESULT.CUDA_ERROR_INVALID_HANDLE, 'no such module')
    this.kernels.removeWhere(kernel => kernel.module === module)
  }

  /** Each call gives a handle of its own; unloading the module ends them all. */
  find(handle: number, name: string): number {
    const module = this.modules.get(handle)
    if (module === undefined) throw this.gate.refuse(RESULT.CUDA_ERROR_INVALID_HANDLE, 'no such module')
    if (!module.entries.has(name)) {
      const known = [...module.entries.keys()].join(', ')
      throw this.gate.refuse(RESULT.CUDA_ERROR_NOT_FOUND, `the module has no kernel '${name}', but ${known}`)
    }
    const kernel = findSimulatedKernel(name)
    if (kernel === undefined) {
      throw this.gate.refuse(
        RESULT.CUDA_ERROR_NOT_SUPPORTED,
        `register a TypeScript function for kernel ${name}, in the thread that opened the simulated driver`,
      )
    }
    return this.kernels.add({ module, name, kernel })
  }

  /** Checks a launch as the driver does at the call, and returns what it will do when its turn comes. */
  launch(context: SimulatedContext, handle: number, shape: LaunchShape, args: KernelArguments): () => void {
    const loaded = this.kernels.get(handle)
    if (loaded === undefined || loaded.module.context !== context) {
      throw this.gate.refuse(RESULT.CUDA_ERROR_INVALID_HANDLE, 'no such kernel in the current context')
    }
    const excess = launchExcess(shape)
    if (excess !== null) throw this.gate.refuse(RESULT.CUDA_ERROR_INVALID_VALUE, excess)
    const { name, kernel, module } = loaded
    const parameters = module.entries.get(name)
    if (args.offsets.length !== parameters) {
      const fact = `kernel ${name} has ${parameters} parameters, the launch gives ${args.offsets.length}`
      throw this.gate.refuse(RESULT.CUDA_ERROR_INVALID_VALUE, fact)
    }
    const launch = { shape, args: new LaunchArguments(args), memory: context.memory }
    return () => kernel(launch)
  }

  removeOf(context: SimulatedContext): void {
    this.modules.removeWhere(module => module.context === context)
    this.kernels.removeWhere(kernel => kernel.module.context === context)
  }
}
