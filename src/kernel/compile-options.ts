// How source code is compiled, checked and put into the compiler's words.

import { describe } from '../base/bytes.js'
import { checkOptionNames } from '../base/option-names.js'
import type { SimulatedKernel } from '../driver/simulated-kernels.js'

/** How `device.compileKernels` compiles. */
export interface CompileOptions {
  /** what messages call the source (`kernels.cu`) */
  readonly name?: string
  /** kernels that are not `extern "C"`, in C++'s own words: `scale<float>`, `tools::scale` */
  readonly kernels?: readonly string[]
  /** folders for `#include`, beside those of this package and of the CUDA toolkit */
  readonly includePaths?: readonly string[]
  /** texts of headers by the name that they are included by */
  readonly headers?: Readonly<Record<string, string>>
  /** macros; true defines one as 1, false leaves it out */
  readonly defines?: Readonly<Record<string, string | number | boolean>>
  /** the language, `c++17` or another that the compiler knows (the compiler's own) */
  readonly std?: string
  /** `sm_90` for machine code, `compute_80` for PTX (machine code for the device, where the compiler knows it) */
  readonly architecture?: string
  /** code for a debugger: slow, with line numbers (false) */
  readonly debug?: boolean
  /** anything else that NVRTC takes, as it stands: `--use_fast_math` */
  readonly flags?: readonly string[]
  /** the path of NVRTC's library, where it is not found by itself */
  readonly nvrtc?: string
  /** on the simulated device, which compiles nothing: what each kernel does */
  readonly simulated?: Readonly<Record<string, SimulatedKernel>>
  /** the same: sizes of the structures that kernels take by value, in bytes by their type's name */
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

/** Refuses what is no source, and options that are unknown or of another type; TypeError names them. */
export function checkCompileOptions(source: unknown, options: CompileOptions): void {
  if (typeof source !== 'string') {
    throw new TypeError(`compileKernels: source must be CUDA C++ text, not ${describe(source)}`)
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

/** What NVRTC is told, but for the architecture. */
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
  throw new TypeError(`compileKernels: ${key} must be ${what}, not ${describe(value)}`)
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
