// Reads PTX text before it is loaded: the names of its kernels and the types of their parameters.

import { FormatError } from '../base/errors.js'

/**
 * The layout of a kernel's parameter, in bytes. `bytes` stands for a structure passed by value. Compiled code has the
 * small floats as structures, so only their declaration tells them. Machine code has sizes only: a parameter of 2, 4 or
 * 8 bytes is `untyped`.
 */
export interface KernelParameter {
  readonly name: string
  readonly kind: 'integer' | 'unsigned' | 'float' | 'float16' | 'bfloat16' | 'bytes' | 'untyped'
  readonly byteLength: number
  readonly byteOffset: number
}

export interface KernelSignature {
  readonly name: string
  readonly parameters: readonly KernelParameter[]
  /** bytes of all parameters together */
  readonly byteLength: number
}

const ENTRY = /\.entry\s+([A-Za-z_$%][\w$]*)\s*(?:\(([^)]*)\))?/g
const PARAMETER =
  /^\.param\s+(?:\.align\s+(\d+)\s+)?\.([a-z]+)(\d+)\s+(?:\.ptr\s+[^,]*?)?([\w$%]+)\s*(?:\[\s*(\d+)\s*\])?$/

/**
 * The kernels that PTX text defines, in its order. Throws FormatError for text without a kernel, or with a parameter
 * that cannot be read.
 */
export function kernelsOf(ptx: string): KernelSignature[] {
  const text = ptx.replace(/\/\*[\s\S]*?\*\//g, ' ').replace(/\/\/[^\n]*/g, ' ')
  const kernels = [...text.matchAll(ENTRY)].map(([, name, parameters]) => signatureOf(name, parameters ?? ''))
  if (kernels.length === 0) throw new FormatError('the PTX text defines no kernel (.entry)')
  return kernels
}

function signatureOf(name: string, list: string): KernelSignature {
  const parameters: KernelParameter[] = []
  let end = 0
  for (const declaration of list.split(',').map(part => part.trim().replace(/\s+/g, ' '))) {
    if (declaration === '') continue
    const match = PARAMETER.exec(declaration)
    if (match === null) throw new FormatError(`kernel ${name}: cannot read the parameter '${declaration}'`)
    const [, align, type, bits, parameter, count] = match
    const elementBytes = Number(bits) / 8
    const byteLength = elementBytes * Number(count ?? 1)
    const alignment = Number(align ?? elementBytes)
    const byteOffset = Math.ceil(end / alignment) * alignment
    parameters.push({ name: parameter, kind: kindOf(type, elementBytes, count !== undefined), byteLength, byteOffset })
    end = byteOffset + byteLength
  }
  return { name, parameters, byteLength: end }
}

function kindOf(type: string, byteLength: number, isArray: boolean): KernelParameter['kind'] {
  if (isArray) return 'bytes'
  if (type === 's') return 'integer'
  if (byteLength === 2 && type.endsWith('f')) return type === 'f' ? 'float16' : 'bfloat16'
  return type === 'f' ? 'float' : 'unsigned'
}
