// Compiling CUDA C++ with NVRTC: source text in, machine code and PTX out, nothing remembered. A compilation needs no
// device, and takes from a tenth of a second to several, during which the thread waits.

import { CompileError } from '../base/errors.js'
import { type NvrtcFunction, type NvrtcLibrary, nvrtcPaths, openNvrtcLibrary, versionOf } from './nvrtc-library.js'

/** What is to be compiled. */
export interface CompileRequest {
  readonly source: string
  /** what messages call the source */
  readonly name: string
  /** texts of headers by the name that they are included by */
  readonly headers: Readonly<Record<string, string>>
  /** as NVRTC takes them, `--std=c++17` */
  readonly options: readonly string[]
  /** kernels in C++'s own words, `scale<float>` or `tools::scale`, whose mangled names are wanted */
  readonly expressions: readonly string[]
}

/** What became of it. */
export interface Compiled {
  readonly ptx: string
  /** machine code; null where the options name a virtual architecture, for which there is none */
  readonly cubin: Uint8Array | null
  /** the name in the code of each expression */
  readonly names: ReadonlyMap<string, string>
  /** warnings */
  readonly log: string
}

/** What compiles. */
export interface SourceCompiler {
  /** the library that was opened */
  readonly path: string
  /** of CUDA, `13.0` */
  readonly version: string
  /** the compute capabilities that it makes machine code for, 90 for 9.0 */
  readonly architectures: readonly number[]
  /** Throws CompileError with the compiler's log. */
  compile(request: CompileRequest): Compiled
}

const NVRTC_SUCCESS = 0
/** of which the log says all */
const NVRTC_ERROR_COMPILATION = 6

/**
 * Opens NVRTC: at `path`, or where it is usually found. Throws NoLibraryError, which names what was tried, where there is
 * none for a driver of this version (12040 for 12.4).
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

/** Text that ends in a zero byte. */
function textOf(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString().replace(/\0$/, '').trim()
}
