// Loaded modules and their kernels: checks of images and launches, and the TypeScript function of each kernel.
// calls.ts uses them.

import { WrongTypeError } from '../../../base/argument-errors.js'
import { isUnwantedPromise } from '../../../base/thrown.js'
import { FUNCTION_ATTRIBUTE, RESULT } from '../../constants.js'
import type { KernelArguments, LaunchShape } from '../../driver.js'
import { findSimulatedKernel, LaunchArguments, type SimulatedKernel } from '../../simulated-kernels.js'
import type { CallInterceptor } from '../call-interceptor.js'
import type { SimulatedContext } from '../context.js'
import { HandleTable } from '../handle-table.js'
import { entriesOf } from './image-entries.js'
import {
  blocksPerMultiprocessor,
  fitsAtOnce,
  launchExcess,
  MOST_THREADS_PER_BLOCK,
  OPTIN_SHARED_BYTES_PER_BLOCK,
  SHARED_BYTES_PER_BLOCK,
} from './launch-limits.js'

interface Module {
  readonly context: SimulatedContext
  /** the parameter count of each entry */
  readonly entries: ReadonlyMap<string, number>
}

interface LoadedKernel {
  readonly module: Module
  readonly name: string
  readonly kernel: SimulatedKernel
  /** limit of dynamic shared memory for a launch; cuFuncSetAttribute raises it */
  mostSharedBytes: number
}

/** The modules and kernels of all contexts, by handle. */
export class Modules {
  private readonly modules = new HandleTable<Module>(0x6000_0000)
  private readonly kernels = new HandleTable<LoadedKernel>(0x7000_0000)

  constructor(private readonly interceptor: CallInterceptor) {}

  /** Loads PTX text, a cubin or a fatbin, and returns the handle of the module. */
  load(context: SimulatedContext, image: string | Uint8Array): number {
    return this.modules.add({ context, entries: entriesOf(image, this.interceptor) })
  }

  unload(handle: number): void {
    const module = this.modules.remove(handle)
    if (module === undefined) throw this.interceptor.refuse(RESULT.CUDA_ERROR_INVALID_HANDLE, 'no such module')
    this.kernels.removeWhere(kernel => kernel.module === module)
  }

  /** A new handle of the kernel `name`, valid until the module is unloaded. */
  find(handle: number, name: string): number {
    const module = this.modules.get(handle)
    if (module === undefined) throw this.interceptor.refuse(RESULT.CUDA_ERROR_INVALID_HANDLE, 'no such module')
    if (!module.entries.has(name)) {
      const known = [...module.entries.keys()].join(', ')
      throw this.interceptor.refuse(RESULT.CUDA_ERROR_NOT_FOUND, `the module has no kernel '${name}', but ${known}`)
    }
    const kernel = findSimulatedKernel(name)
    if (kernel === undefined) {
      throw this.interceptor.refuse(
        RESULT.CUDA_ERROR_NOT_SUPPORTED,
        `register a TypeScript function for kernel ${name}, in the thread that opened the simulated driver`,
      )
    }
    return this.kernels.add({ module, name, kernel, mostSharedBytes: SHARED_BYTES_PER_BLOCK })
  }

  /** Checks a launch as the driver does at the call, and returns the work to be submitted. */
  launch(context: SimulatedContext, handle: number, shape: LaunchShape, args: KernelArguments): () => void {
    const { name, kernel, module, mostSharedBytes } = this.loaded(context, handle)
    const excess = launchExcess(shape, mostSharedBytes)
    if (excess !== null) throw this.interceptor.refuse(RESULT.CUDA_ERROR_INVALID_VALUE, excess)
    const parameters = module.entries.get(name)
    if (args.offsets.length !== parameters) {
      const fact = `kernel ${name} has ${parameters} parameters, the launch gives ${args.offsets.length}`
      throw this.interceptor.invalid(fact)
    }
    const { grid, block, sharedBytes } = shape
    const copied: LaunchShape = { grid: [...grid], block: [...block], sharedBytes }
    const launch = { shape: copied, args: new LaunchArguments(args), memory: context.memory }
    return () => {
      if (isUnwantedPromise(kernel(launch))) throw new WrongTypeError(`kernel ${name} must not be asynchronous`)
    }
  }

  /** As `launch`, for a cooperative launch: all blocks must fit on the device at the same time. */
  launchTogether(context: SimulatedContext, handle: number, shape: LaunchShape, args: KernelArguments): () => void {
    const run = this.launch(context, handle, shape, args)
    if (fitsAtOnce(shape)) return run
    throw this.interceptor.refuse(
      RESULT.CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
      'the blocks do not all run at the same time',
    )
  }

  /** An attribute of a kernel. A simulated kernel uses no registers and no memory of its own. */
  attribute(context: SimulatedContext, handle: number, attribute: number): number {
    const loaded = this.loaded(context, handle)
    switch (attribute) {
      case FUNCTION_ATTRIBUTE.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        return MOST_THREADS_PER_BLOCK
      case FUNCTION_ATTRIBUTE.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        return loaded.mostSharedBytes
      case FUNCTION_ATTRIBUTE.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      case FUNCTION_ATTRIBUTE.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
      case FUNCTION_ATTRIBUTE.CU_FUNC_ATTRIBUTE_NUM_REGS:
        return 0
      default:
        throw this.interceptor.invalid(`no function attribute ${attribute}`)
    }
  }

  setAttribute(context: SimulatedContext, handle: number, attribute: number, value: number): void {
    const loaded = this.loaded(context, handle)
    const settable = attribute === FUNCTION_ATTRIBUTE.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    if (!settable || !(value >= 0 && value <= OPTIN_SHARED_BYTES_PER_BLOCK)) {
      const fact = `function attribute ${attribute} cannot be set to ${value}`
      throw this.interceptor.invalid(fact)
    }
    loaded.mostSharedBytes = value
  }

  /** Blocks that a multiprocessor can run at the same time. */
  occupancy(context: SimulatedContext, handle: number, blockThreads: number, sharedBytes: number): number {
    this.loaded(context, handle)
    if (!(blockThreads >= 1 && sharedBytes >= 0)) {
      throw this.interceptor.invalid(`a block of ${blockThreads} threads`)
    }
    return blocksPerMultiprocessor(blockThreads, sharedBytes)
  }

  private loaded(context: SimulatedContext, handle: number): LoadedKernel {
    const loaded = this.kernels.get(handle)
    if (loaded !== undefined && loaded.module.context === context) return loaded
    throw this.interceptor.refuse(RESULT.CUDA_ERROR_INVALID_HANDLE, 'no such kernel in the current context')
  }

  /** Removes the modules and kernels of a context that ends. */
  removeOf(context: SimulatedContext): void {
    this.modules.removeWhere(module => module.context === context)
    this.kernels.removeWhere(kernel => kernel.module.context === context)
  }
}
