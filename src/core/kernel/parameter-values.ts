// The values that a parameter of a kernel takes.

import type { KernelParameter } from './ptx.js'

/** Compilers declare a signed int as .u32, so unsigned parameters take negative numbers, too. */
export function leastOf({ byteLength }: KernelParameter): number {
  return Math.max(-(2 ** (byteLength * 8 - 1)), Number.MIN_SAFE_INTEGER)
}

export function mostOf({ kind, byteLength }: KernelParameter): number {
  const bits = byteLength * 8
  return Math.min(2 ** (kind === 'integer' ? bits - 1 : bits) - 1, Number.MAX_SAFE_INTEGER)
}

const UNTYPED =
  'a bigint, a buffer or its bytes, since a cubin does not tell its type; for numbers: kernel(name, { parameters })'

/** The kinds of values that a parameter takes, for messages. */
export function wantedFor({ kind, byteLength }: KernelParameter): string {
  if (kind === 'bytes') return `a Uint8Array of ${byteLength} bytes`
  if (kind === 'untyped') return UNTYPED
  if (kind !== 'integer' && kind !== 'unsigned') return 'a number'
  return byteLength === 8 ? 'a buffer, a number or a bigint' : 'a number, a bigint or a boolean'
}
