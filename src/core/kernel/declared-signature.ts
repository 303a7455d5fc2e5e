// The parameters of a loaded kernel as its source declares them. Compiled code has lost their names, and a cubin their
// types, too.

import { WrongTypeError } from '../base/argument-errors.js'
import { describe } from '../base/bytes.js'
import { type DeclaredParameter, declaredParameters, smallFloatOf } from './declarations.js'
import type { KernelParameter, KernelSignature } from './ptx.js'

/** The signature with declared names, and the types that the code does not tell; there are as many of both. */
export function declaredSignature(signature: KernelSignature, declared: readonly DeclaredParameter[]): KernelSignature {
  const parameters = signature.parameters.map((each, index) => {
    const { [index]: parameter } = declared
    return { ...each, name: parameter.name, kind: kindOf(each, parameter) }
  })
  return { ...signature, parameters }
}

/**
 * The signature with the types of a parameter list that a program writes, such as `float *x, int n`. Throws TypeError
 * for a list that cannot be read, and for one that does not fit the code.
 */
export function checkedSignature(signature: KernelSignature, list: unknown): KernelSignature {
  if (typeof list !== 'string') {
    throw new WrongTypeError(
      `kernel: parameters must be text as in the source, such as 'float *x, int n', not ${describe(list)}`,
    )
  }
  const declared = declaredParameters(list)
  if (declared.some(each => each.name === '' || each.typeName === '')) {
    throw new WrongTypeError("kernel: parameters must have a type and a name each, such as 'float *x, int n'")
  }
  const { name, parameters } = signature
  if (declared.length !== parameters.length) {
    throw new WrongTypeError(
      `kernel: parameters declares ${declared.length}, and ${name} has ${parameters.length} in the code`,
    )
  }
  for (const [index, { byteLength }] of parameters.entries()) checkSize(name, declared[index], byteLength)
  return declaredSignature(signature, declared)
}

function checkSize(kernel: string, declared: DeclaredParameter, byteLength: number): void {
  const bytes = bytesOf(declared)
  if (bytes === null || bytes === byteLength) return
  throw new WrongTypeError(
    `kernel: parameters declares '${declared.name}' with ${bytes} bytes, and in the code of ${kernel} it has ${byteLength}`,
  )
}

/** The size of a declared parameter; null if its type is not built into the language. */
function bytesOf(declared: DeclaredParameter): number | null {
  if (smallFloatOf(declared) !== undefined) return 2
  return declared.ptxType === null ? null : Number(declared.ptxType.slice(2)) / 8
}

function kindOf(inCode: KernelParameter, declared: DeclaredParameter): KernelParameter['kind'] {
  const { kind, byteLength } = inCode
  const smallFloat = byteLength === 2 ? smallFloatOf(declared) : undefined
  if (smallFloat !== undefined) return smallFloat
  const { ptxType } = declared
  if (kind !== 'untyped' || ptxType === null) return kind
  if (ptxType.startsWith('.f')) return 'float'
  return ptxType.startsWith('.s') ? 'integer' : 'unsigned'
}
