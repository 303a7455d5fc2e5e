// The options of a compilation: their checks, and their translation into the compiler's flags.

import { WrongTypeError } from '../base/argument-errors.js'
import { describe } from '../base/bytes.js'
import { checkOptionNames } from '../base/option-names.js'
import type { SimulatedKernel } from '../driver/simulated-kernels.js'

/** How `device.compileKernels` compiles. The default of each option is in parentheses. */
export interface CompileOptions {
  /** name of the source in messages (`kernels.cu`) */
  readonly name?: string
  /** kernels that are not `extern "C"`, as C++ names them: `scale<float>`, `tools::scale` */
  readonly kernels?: readonly string[]
  /** folders for `#include`, besides those of this package and of the CUDA toolkit */
  readonly includePaths?: readonly string[]
  /** texts of headers, by the name in their `#include` */
  readonly headers?: Readonly<Record<string, string>>
  /** macros; true defines one as 1, false leaves it out */
  readonly defines?: Readonly<Record<string, string | number | boolean>>
  /** the language: `c++17`, or another that the compiler knows (the compiler's default) */
  readonly std?: string
  /** `sm_90` for machine code, `compute_80` for PTX (machine code for the device, if the compiler can make it) */
  readonly architecture?: string
  /** code for a debugger: slow, with line numbers (false) */
  readonly debug?: boolean
  /** further flags, passed to NVRTC as they are: `--use_fast_math` */
  readonly flags?: readonly string[]
  /** path of NVRTC's library, for one in an unusual place */
  readonly nvrtc?: string
  /** for the simulated device, which compiles nothing: the function that runs in place of each kernel, by its name */
  readonly simulated?: Readonly<Record<string, SimulatedKernel>>
  /** for the simulated device: sizes of structures that kernels take by value, in bytes, by the name of their type */
  readonly structBytes?: Readonly<Record<string, number>>
}

const KEYS = [
  'name',
  'kernels',
  'includePaths',
  'headers',
  'defines',
  'std',
  'architecture',
  'debug',
  'flags',
  'nvrtc',
  'simulated',
  'structBytes',
]

/**
 * Throws TypeError for a source that is not text, and for options that are unknown or of the wrong type; the message
 * names them.
 */
export function checkCompileOptions(source: unknown, options: CompileOptions): void {
  if (typeof source !== 'string') {
    throw new WrongTypeError(`compileKernels: source must be CUDA C++ text, not ${describe(source)}`)
  }
  checkOptionNames('compileKernels', options, KEYS)
  for (const key of ['name', 'std', 'architecture', 'nvrtc'] as const) check(options, key, isText, 'text')
  for (const key of ['kernels', 'includePaths', 'flags'] as const) check(options, key, isTexts, 'a list of texts')
  check(options, 'debug', value => typeof value === 'boolean', 'true or false')
  check(options, 'headers', value => isRecord(value, isText), 'an object of texts')
  check(options, 'defines', value => isRecord(value, isDefinition), 'an object of texts, numbers and booleans')
  check(options, 'simulated', value => isRecord(value, each => typeof each === 'function'), 'an object of functions')
  check(options, 'structBytes', value => isRecord(value, isSize), 'an object of sizes in bytes')
}

/** The compiler's flags, without the architecture. */
export function compilerFlags(options: CompileOptions, folders: readonly string[]): string[] {
  const { std, debug = false, defines = {}, includePaths = [], flags = [] } = options
  return [
    ...(std === undefined ? [] : [`--std=${std}`]),
    ...(debug ? ['--device-debug', '--generate-line-info'] : []),
    ...Object.entries(defines).flatMap(([name, value]) =>
      value === false ? [] : [`--define-macro=${name}=${value === true ? 1 : value}`],
    ),
    ...[...includePaths, ...folders].map(folder => `--include-path=${folder}`),
    ...flags,
  ]
}

function check(
  options: CompileOptions,
  key: keyof CompileOptions,
  holds: (value: unknown) => boolean,
  what: string,
): void {
  const value = options[key]
  if (value === undefined || holds(value)) return
  throw new WrongTypeError(`compileKernels: ${key} must be ${what}, not ${describe(value)}`)
}

function isText(value: unknown): boolean {
  return typeof value === 'string' && value !== ''
}

function isTexts(value: unknown): boolean {
  return Array.isArray(value) && value.every(isText)
}

function isDefinition(value: unknown): boolean {
  return ['string', 'number', 'boolean'].includes(typeof value)
}

function isSize(value: unknown): boolean {
  return Number.isSafeInteger(value) && (value as number) > 0
}

function isRecord(value: unknown, holds: (each: unknown) => boolean): boolean {
  return typeof value === 'object' && value !== null && Object.values(value).every(holds)
}
