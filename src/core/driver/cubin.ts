// Reads a cubin before it is loaded: for which GPUs it is, and where the parameters of its kernels lie. A cubin is
// machine code for one architecture, in an ELF file. It has sizes of parameters, but neither types nor names.
//
// LLVM's BinaryFormat/ELF.h has the constants of CUDA (EM_CUDA, EF_CUDA_SM, STO_CUDA_ENTRY). The section
// `.nv.info.NAME` is a list of attributes of the kernel NAME; its layout was read from `cuobjdump -elf` and `readelf`.

import { FormatError } from '../base/errors.js'
import { ElfFile, type ElfHeader } from './elf.js'

/** The place of a parameter among the bytes of all. */
export interface CubinParameter {
  readonly byteOffset: number
  readonly byteLength: number
}

export interface CubinKernel {
  readonly name: string
  readonly parameters: readonly CubinParameter[]
}

export interface Cubin {
  /** 90 for sm_90 */
  readonly architecture: number
  readonly kernels: readonly CubinKernel[]
}

const ELF_MAGIC = 0x464c457f
const EM_CUDA = 190
const ET_REL = 1
/** from this EI_ABIVERSION on (CUDA 13), e_flags has the architecture one byte higher */
const ABI_VERSION_2 = 8
/** a flag of st_other: the symbol is a kernel */
const STO_CUDA_ENTRY = 0x10

/** An attribute of this format has its size in the next two bytes, and then its value; others end after two bytes. */
const EIFMT_SVAL = 4
/** A parameter: 4 bytes unused, its number, its offset, and from bit 18 of the last word on its size. */
const EIATTR_KPARAM_INFO = 0x17
/** The same for kernels with more than 4 KiB of parameters: the size has 16 bits of its own. */
const EIATTR_KPARAM_INFO_V2 = 0x45
const PARAMETER_BYTES = 12

/** Whether bytes begin as an ELF file does. */
export function isElf(bytes: Uint8Array): boolean {
  return bytes.length >= 4 && new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true) === ELF_MAGIC
}

/** Throws FormatError for a truncated image, for code of another machine, and for code that is not linked. */
export function readCubin(bytes: Uint8Array): Cubin {
  const file = new ElfFile(bytes)
  const { machine, type } = file.header
  if (machine !== EM_CUDA) {
    throw new FormatError(`the ELF image is no cubin: its machine is ${machine}, and that of GPUs is ${EM_CUDA}`)
  }
  if (type === ET_REL) throw new FormatError('the cubin is relocatable; link it by nvlink, or build it without -dc')
  const lists = new Map(file.sections.map(({ name, content }) => [name, content]))
  const names = file.symbols().flatMap(({ name, other }) => ((other & STO_CUDA_ENTRY) === 0 ? [] : [name]))
  if (names.length === 0) throw new FormatError('the cubin defines no kernel')
  const kernels = names.map(name => ({ name, parameters: parametersIn(lists.get(`.nv.info.${name}`), name) }))
  return { architecture: architectureOf(file.header), kernels }
}

function architectureOf({ abiVersion, flags }: ElfHeader): number {
  return (abiVersion >= ABI_VERSION_2 ? flags >>> 8 : flags) & 0xff
}

/** The parameters in a list of attributes. A kernel without parameters may have no list. */
function parametersIn(list: DataView | undefined, kernel: string): CubinParameter[] {
  const parameters: CubinParameter[] = []
  for (const { attribute, value } of list === undefined ? [] : attributesIn(list, kernel)) {
    if (attribute !== EIATTR_KPARAM_INFO && attribute !== EIATTR_KPARAM_INFO_V2) continue
    if (value.byteLength < PARAMETER_BYTES) throw unreadable(kernel)
    const byteLength = attribute === EIATTR_KPARAM_INFO ? value.getUint32(8, true) >>> 18 : value.getUint16(8, true)
    parameters[value.getUint16(4, true)] = { byteOffset: value.getUint16(6, true), byteLength }
  }
  let end = 0
  for (const parameter of parameters) {
    if (parameter === undefined || parameter.byteOffset < end) throw unreadable(kernel)
    end = parameter.byteOffset + parameter.byteLength
  }
  return parameters
}

function* attributesIn(list: DataView, kernel: string): Generator<{ attribute: number; value: DataView }> {
  for (let start = 0; start + 4 <= list.byteLength; ) {
    const hasSize = list.getUint8(start) === EIFMT_SVAL
    const bytes = hasSize ? list.getUint16(start + 2, true) : 0
    if (start + 4 + bytes > list.byteLength) throw unreadable(kernel)
    yield {
      attribute: list.getUint8(start + 1),
      value: new DataView(list.buffer, list.byteOffset + start + 4, bytes),
    }
    start += 4 + bytes
  }
}

function unreadable(kernel: string): FormatError {
  return new FormatError(`the cubin's parameters of kernel ${kernel} cannot be read; build it again, or load PTX`)
}
