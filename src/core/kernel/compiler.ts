// From CUDA C++ source to a loaded module. Machine code is kept until the device closes, by source, options and
// architecture, so that compiling the same again takes only a load. Each call loads a module of its own, with its own
// __device__ variables, which the caller closes.
//
// The simulated device compiles nothing: it reads which kernels the source declares, and runs a TypeScript function
// for each.

import { FormatError, NoLibraryError } from '../base/errors.js'
import type { Context } from '../driver/context.js'
import { openNvrtc, type SourceCompiler } from '../libraries/nvrtc.js'
import { headerFolders, toolkitFolders } from '../libraries/toolkits.js'
import type { Stream } from '../order/stream.js'
import { type CompileOptions, checkCompileOptions, compilerFlags } from './compile-options.js'
import { declaredKernels } from './declarations.js'
import { deviceIncludePath } from './device-code.js'
import { type CompiledCode, Module } from './module.js'
import { simulatedCode } from './simulated-code.js'

export class Compiler {
  private readonly compiled = new Map<string, CompiledCode>()
  private readonly opened = new Map<string | undefined, SourceCompiler>()

  constructor(
    private readonly context: Context,
    private readonly defaultStream: Stream,
    private readonly open: (driverVersion: number, path?: string) => SourceCompiler = openNvrtc,
  ) {}

  /** See `Device.compileKernels`. */
  compile(source: string, options: CompileOptions): Module {
    checkCompileOptions(source, options)
    const { context, defaultStream } = this
    const code = context.driver.simulated ? simulatedCode(source, options) : this.code(source, options)
    return new Module(context, defaultStream, code)
  }

  private code(source: string, options: CompileOptions): CompiledCode {
    const { name = 'kernels.cu', kernels = [], headers = {} } = options
    const compiler = this.compiler(options.nvrtc)
    const architecture = options.architecture ?? this.architecture(compiler)
    const folders = [deviceIncludePath(), ...headerFolders(toolkitFolders())]
    const flags = [`--gpu-architecture=${architecture}`, ...compilerFlags(options, folders)]
    const key = JSON.stringify([compiler.path, name, source, kernels, Object.entries(headers), flags])
    const known = this.compiled.get(key)
    if (known !== undefined) return known
    const { ptx, cubin, names, log } = compiler.compile({ source, name, headers, options: flags, expressions: kernels })
    if (!/\.entry\b/.test(ptx)) {
      throw new FormatError(
        `compileKernels: ${name} has no kernel; declare one extern "C" __global__ (what is a template or static must be named in the option kernels)`,
      )
    }
    const code = { ptx, image: cubin ?? ptx, names, declared: declaredKernels(source), log }
    this.compiled.set(key, code)
    return code
  }

  private compiler(path: string | undefined): SourceCompiler {
    const known = this.opened.get(path)
    if (known !== undefined) return known
    const compiler = this.open(this.context.activate().cuDriverGetVersion(), path)
    this.opened.set(path, compiler)
    return compiler
  }

  /**
   * Machine code for the device if the compiler can make it, else PTX of the latest older architecture, which the
   * driver compiles.
   */
  private architecture({ architectures, path, version }: SourceCompiler): string {
    const { context } = this
    const capability =
      context.attribute('CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR') * 10 +
      context.attribute('CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR')
    if (architectures.includes(capability)) return `sm_${capability}`
    const before = architectures.filter(each => each < capability)
    if (before.length > 0) return `compute_${Math.max(...before)}`
    throw new NoLibraryError(
      `compileKernels: ${path} (CUDA ${version}) compiles for compute capability ${Math.min(...architectures) / 10} and later, ` +
        `and the device has ${capability / 10}; install NVRTC of an earlier CUDA`,
    )
  }
}
