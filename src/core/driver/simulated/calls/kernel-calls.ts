// Modules, launches and occupancy in the simulated driver.

import type { KernelArguments, LaunchShape } from '../../driver.js'
import { CALL } from '../call-interceptor.js'
import { MOST_THREADS_PER_BLOCK, MULTIPROCESSORS } from '../kernels/launch-limits.js'
import { VirtualMemoryCalls } from './virtual-memory-calls.js'

export class KernelCalls extends VirtualMemoryCalls {
  cuModuleLoadData(image: string | Uint8Array): number {
    return this.modules.load(this.enter(CALL.cuModuleLoadData), image)
  }

  cuModuleUnload(module: number): void {
    this.enter(CALL.cuModuleUnload)
    this.modules.unload(module)
  }

  cuModuleGetFunction(module: number, name: string): number {
    this.enter(CALL.cuModuleGetFunction)
    return this.modules.find(module, name)
  }

  cuLaunchKernel(kernel: number, shape: LaunchShape, stream: number, args: KernelArguments): void {
    const context = this.enter(CALL.cuLaunchKernel)
    const queue = this.streams.queueOf(context, stream)
    this.scheduler.submit(queue, this.modules.launch(context, kernel, shape, args))
  }

  cuLaunchCooperativeKernel(kernel: number, shape: LaunchShape, stream: number, args: KernelArguments): void {
    const context = this.enter(CALL.cuLaunchCooperativeKernel)
    const queue = this.streams.queueOf(context, stream)
    this.scheduler.submit(queue, this.modules.launchTogether(context, kernel, shape, args))
  }

  cuFuncGetAttribute(attribute: number, kernel: number): number {
    return this.modules.attribute(this.enter(CALL.cuFuncGetAttribute), kernel, attribute)
  }

  cuFuncSetAttribute(kernel: number, attribute: number, value: number): void {
    this.modules.setAttribute(this.enter(CALL.cuFuncSetAttribute), kernel, attribute, value)
  }

  cuOccupancyMaxActiveBlocksPerMultiprocessor(kernel: number, blockThreads: number, sharedBytes: number): number {
    const context = this.enter(CALL.cuOccupancyMaxActiveBlocksPerMultiprocessor)
    return this.modules.occupancy(context, kernel, blockThreads, sharedBytes)
  }

  cuOccupancyMaxPotentialBlockSize(kernel: number, sharedBytes: number): { blocks: number; blockThreads: number } {
    const context = this.enter(CALL.cuOccupancyMaxPotentialBlockSize)
    const perMultiprocessor = this.modules.occupancy(context, kernel, MOST_THREADS_PER_BLOCK, sharedBytes)
    return { blocks: perMultiprocessor * MULTIPROCESSORS, blockThreads: MOST_THREADS_PER_BLOCK }
  }
}
