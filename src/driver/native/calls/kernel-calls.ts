// Modules, launches and occupancy by libcuda.

import { exact, hostMemory, int, text, uint } from '../../../libraries/arguments.js'
import { RESULT } from '../../constants.js'
import type { KernelArguments, LaunchShape } from '../../driver.js'
import { VirtualMemoryCalls } from './virtual-memory-calls.js'

export class KernelCalls extends VirtualMemoryCalls {
  cuModuleLoadData(image: string | Uint8Array): number {
    const source = typeof image === 'string' ? Buffer.from(image) : hostMemory(image, 'image')
    const { buffer } = this
    buffer.clearText()
    // PTX must end in a zero byte, which does a cubin no harm.
    const ended = Buffer.concat([source, Buffer.alloc(1)])
    const code = this.live.cuModuleLoadData(buffer.first, ended, 2, buffer.jitOptions, buffer.jitValues)
    if (code !== RESULT.CUDA_SUCCESS) throw this.refusal('cuModuleLoadData', code, this.context, buffer.readText())
    return buffer.exact()
  }

  cuModuleUnload(module: number): void {
    this.check('cuModuleUnload', this.live.cuModuleUnload(exact(module, 'module')))
  }

  cuModuleGetFunction(module: number, name: string): number {
    const code = this.live.cuModuleGetFunction(this.buffer.first, exact(module, 'module'), text(name, 'name'))
    this.check('cuModuleGetFunction', code)
    return this.buffer.exact()
  }

  cuLaunchKernel(kernel: number, shape: LaunchShape, stream: number, args: KernelArguments): void {
    this.launch('cuLaunchKernel', kernel, shape, stream, args, 0) // no `extra`
  }

  cuLaunchCooperativeKernel(kernel: number, shape: LaunchShape, stream: number, args: KernelArguments): void {
    this.launch('cuLaunchCooperativeKernel', kernel, shape, stream, args)
  }

  cuFuncGetAttribute(attribute: number, kernel: number): number {
    const { first } = this.buffer
    const code = this.live.cuFuncGetAttribute(first, int(attribute, 'attribute'), exact(kernel, 'kernel'))
    this.check('cuFuncGetAttribute', code)
    return this.buffer.int()
  }

  cuFuncSetAttribute(kernel: number, attribute: number, value: number): void {
    const code = this.live.cuFuncSetAttribute(exact(kernel, 'kernel'), int(attribute, 'attribute'), int(value, 'value'))
    this.check('cuFuncSetAttribute', code)
  }

  cuOccupancyMaxActiveBlocksPerMultiprocessor(kernel: number, blockThreads: number, sharedBytes: number): number {
    const code = this.live.cuOccupancyMaxActiveBlocksPerMultiprocessor(
      this.buffer.first,
      exact(kernel, 'kernel'),
      int(blockThreads, 'blockThreads'),
      exact(sharedBytes, 'sharedBytes'),
    )
    this.check('cuOccupancyMaxActiveBlocksPerMultiprocessor', code)
    return this.buffer.int()
  }

  cuOccupancyMaxPotentialBlockSize(kernel: number, sharedBytes: number): { blocks: number; blockThreads: number } {
    const code = this.live.cuOccupancyMaxPotentialBlockSize(
      this.buffer.first,
      this.buffer.second,
      exact(kernel, 'kernel'),
      0,
      exact(sharedBytes, 'sharedBytes'),
      0,
    )
    this.check('cuOccupancyMaxPotentialBlockSize', code)
    return { blocks: this.buffer.int(), blockThreads: this.buffer.intSecond() }
  }

  /** The prototypes of both launches differ only in `extra`, the last parameter of cuLaunchKernel. */
  private launch(
    call: 'cuLaunchKernel' | 'cuLaunchCooperativeKernel',
    kernel: number,
    shape: LaunchShape,
    stream: number,
    args: KernelArguments,
    ...extra: number[]
  ): void {
    const { grid, block, sharedBytes } = shape
    const code = this.live[call](
      exact(kernel, 'kernel'),
      uint(grid[0], 'grid x'),
      uint(grid[1], 'grid y'),
      uint(grid[2], 'grid z'),
      uint(block[0], 'block x'),
      uint(block[1], 'block y'),
      uint(block[2], 'block z'),
      uint(sharedBytes, 'sharedBytes'),
      exact(stream, 'stream'),
      this.buffer.placeArguments(args),
      ...extra,
    )
    this.check(call, code)
  }
}
