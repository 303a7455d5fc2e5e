// Stands for compiled code on the simulated device: PTX that declares the source's kernels and does nothing. The
// TypeScript functions that run instead are registered under unique names, so that two sources may have kernels of
// the same name.

import { OutOfRangeError, WrongTypeError } from '../base/argument-errors.js'
import { FormatError } from '../base/errors.js'
import { findSimulatedKernel, registerSimulatedKernel } from '../driver/simulated-kernels.js'
import type { CompileOptions } from './compile-options.js'
import {
  type DeclaredKernel,
  type DeclaredParameter,
  declaredAs,
  declaredKernels,
  smallFloatOf,
} from './declarations.js'
import type { CompiledCode } from './module.js'

let registered = 0

/**
 * Throws TypeError for a kernel without a function, or a parameter of unknown size; RangeError for a function or an
 * expression without a kernel; FormatError for source that declares no kernel.
 */
export function simulatedCode(source: string, options: CompileOptions): CompiledCode {
  const { kernels: expressions = [], simulated = {}, structBytes = {} } = options
  const declared = declaredKernels(source)
  const wanted = new Map<string, DeclaredKernel>()
  for (const kernel of declared) if (kernel.isExternC) wanted.set(kernel.name, kernel)
  for (const expression of expressions) wanted.set(expression, namedBy(expression, declared))
  if (wanted.size === 0)
    throw new FormatError('compileKernels: the source declares no kernel; declare one extern "C" __global__')
  for (const name of Object.keys(simulated)) {
    if (wanted.has(name)) continue
    throw new OutOfRangeError(
      `compileKernels: simulated has '${name}'; the kernels are ${[...wanted.keys()].join(', ')}`,
    )
  }
  const entries: string[] = []
  const names = new Map<string, string>()
  for (const [name, { parameters }] of wanted) {
    const run = Object.hasOwn(simulated, name) ? simulated[name] : findSimulatedKernel(name)
    if (run === undefined) {
      throw new WrongTypeError(
        `compileKernels: the simulated device compiles nothing, and has no function for kernel ${name}; give one in the option simulated: { ${JSON.stringify(name)}: launch => … }`,
      )
    }
    const entry = `${name.replace(/\W+/g, '_')}_${++registered}` // errors show it
    registerSimulatedKernel(entry, run)
    names.set(name, entry)
    const list = parameters.map(parameter => declarationOf(parameter, structBytes)).join(', ')
    entries.push(`.visible .entry ${entry}(${list}) { ret; }`)
  }
  const ptx = ['.version 6.4', '.target sm_52', '.address_size 64', ...entries, ''].join('\n')
  return { ptx, image: ptx, names, declared, log: '' }
}

function namedBy(expression: string, declared: readonly DeclaredKernel[]): DeclaredKernel {
  const kernel = declared.find(each => each.name === declaredAs(expression))
  if (kernel !== undefined) return kernel
  const names = declared.map(each => each.name).join(', ')
  throw new OutOfRangeError(`compileKernels: the source declares no kernel '${expression}'; it has ${names}`)
}

function declarationOf(parameter: DeclaredParameter, sizes: Readonly<Record<string, number>>): string {
  const { name, typeName, ptxType } = parameter
  if (smallFloatOf(parameter) !== undefined) return `.param .align 2 .b8 ${name}[2]`
  if (ptxType !== null) return `.param ${ptxType} ${name}`
  if (Object.hasOwn(sizes, typeName)) return `.param .align 8 .b8 ${name}[${sizes[typeName]}]`
  throw new WrongTypeError(
    `compileKernels: the simulated device does not know the type '${typeName}' of parameter ${name}; give its size in the option structBytes: { ${JSON.stringify(typeName)}: … }`,
  )
}
