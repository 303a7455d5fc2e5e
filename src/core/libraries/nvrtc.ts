// Compiles CUDA C++ with NVRTC: source text in, machine code and PTX out, without a cache. core/kernel/compiler.ts uses
// it. It needs no device. The thread waits for the compilation, which takes from a tenth of a second to several
// seconds.

import { CompileError } from '../base/errors.js'
import { type NvrtcFunction, type NvrtcLibrary, nvrtcPaths, openNvrtcLibrary, versionOf } from './nvrtc-library.js'

/** The input of a compilation. */
export interface CompileRequest {
  readonly source: string
  /** name of the source in messages */
  readonly name: string
  /** texts of headers, by the name in `#include` */
  readonly headers: Readonly<Record<string, string>>
  /** options of NVRTC, such as `--std=c++17` */
  readonly options: readonly string[]
  /** C++ names of kernels, such as `scale<float>` or `tools::scale`; the result has their mangled names */
  readonly expressions: readonly string[]
}

/** The output of a compilation. */
interface Compiled {
  readonly ptx: string
  /** machine code; null if the options name a virtual architecture, which has no machine code */
  readonly cubin: Uint8Array | null
  /** by expression: its mangled name in the code */
  readonly names: ReadonlyMap<string, string>
  /** warnings */
  readonly log: string
}

/** An opened compiler. */
export interface SourceCompiler {
  /** the path of the opened library */
  readonly path: string
  /** CUDA version, such as `13.0` */
  readonly version: string
  /** supported compute capabilities, 90 for 9.0 */
  readonly architectures: readonly number[]
  /** Compiles one source. Throws CompileError with the log of the compiler. */
  compile(request: CompileRequest): Compiled
}

const NVRTC_SUCCESS = 0
/** the source is wrong; the log has the details */
const NVRTC_ERROR_COMPILATION = 6

/**
 * Opens NVRTC at `path`, or at the usual places. Throws NoLibraryError with the attempts if no library suits a driver
 * of `driverVersion` (12040 for 12.4).
 */
export function openNvrtc(driverVersion: number, path?: string): SourceCompiler {
  return new Nvrtc(openNvrtcLibrary(path === undefined ? nvrtcPaths() : [path], driverVersion))
}

class Nvrtc implements SourceCompiler {
  readonly path: string
  readonly version: string
  readonly architectures: readonly number[]

  constructor(private readonly library: NvrtcLibrary) {
    this.path = library.path
    this.version = versionOf(library.functions.nvrtcVersion).join('.')
    const count = [0]
    this.check('nvrtcGetNumSupportedArchs', library.functions.nvrtcGetNumSupportedArchs(count))
    const architectures = new Int32Array(count[0])
    const bytes = new Uint8Array(architectures.buffer)
    this.check('nvrtcGetSupportedArchs', library.functions.nvrtcGetSupportedArchs(bytes))
    this.architectures = [...architectures]
  }

  compile({ source, name, headers, options, expressions }: CompileRequest): Compiled {
    const { functions } = this.library
    const program = [0]
    const [texts, names] = [Object.values(headers), Object.keys(headers)]
    const created = functions.nvrtcCreateProgram(program, source, name, names.length, texts, names)
    this.check('nvrtcCreateProgram', created)
    try {
      const [handle] = program
      for (const expression of expressions) {
        this.check('nvrtcAddNameExpression', functions.nvrtcAddNameExpression(handle, expression))
      }
      const code = functions.nvrtcCompileProgram(handle, options.length, options)
      const log = textOf(this.output(handle, 'nvrtcGetProgramLogSize', 'nvrtcGetProgramLog'))
      if (code !== NVRTC_SUCCESS) throw failure(name, code, log)
      const cubin = this.output(handle, 'nvrtcGetCUBINSize', 'nvrtcGetCUBIN')
      return {
        ptx: textOf(this.output(handle, 'nvrtcGetPTXSize', 'nvrtcGetPTX')),
        cubin: cubin.length === 0 ? null : cubin,
        names: new Map(expressions.map(expression => [expression, this.loweredName(handle, expression)])),
        log,
      }
    } finally {
      functions.nvrtcDestroyProgram(program)
    }
  }

  private output(
    handle: number,
    size: 'nvrtcGetProgramLogSize' | 'nvrtcGetPTXSize' | 'nvrtcGetCUBINSize',
    get: 'nvrtcGetProgramLog' | 'nvrtcGetPTX' | 'nvrtcGetCUBIN',
  ): Uint8Array {
    const bytes = [0]
    this.check(size, this.library.functions[size](handle, bytes))
    const output = new Uint8Array(new ArrayBuffer(bytes[0]))
    if (output.length > 0) this.check(get, this.library.functions[get](handle, output))
    return output
  }

  private loweredName(handle: number, expression: string): string {
    const lowered: (string | null)[] = [null]
    this.check('nvrtcGetLoweredName', this.library.functions.nvrtcGetLoweredName(handle, expression, lowered))
    return lowered[0]!
  }

  private check(call: keyof NvrtcLibrary['functions'], code: ReturnType<NvrtcFunction>): void {
    if (code !== NVRTC_SUCCESS) throw new CompileError(`${call} of ${this.path} failed with result ${code}`, '')
  }
}

function failure(name: string, code: number, log: string): CompileError {
  const how = code === NVRTC_ERROR_COMPILATION ? 'does not compile' : `was refused by NVRTC with result ${code}`
  return new CompileError(`compileKernels: ${name} ${how}:\n${log}`, log)
}

/** Decodes text with a zero byte at its end. */
function textOf(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString().replace(/\0$/, '').trim()
}
