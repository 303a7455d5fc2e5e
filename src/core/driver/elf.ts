// Reads the sections and symbols of an ELF file of 64 bits, which is what a cubin is (cubin.ts). The layout is that of
// the System V ABI, chapters 4 and 5, and of elf(5). The driver is given the image without its size, and follows the
// numbers in it. So every table and section must lie within the image.

import { FormatError } from '../base/errors.js'

/** Bytes of the ELF header, of an entry in the tables of segments and sections, and of a symbol. */
const [HEADER_BYTES, SEGMENT_BYTES, SECTION_BYTES, SYMBOL_BYTES] = [64, 56, 64, 24]

/** A section without bytes in the file. */
const SHT_NOBITS = 8
const SHT_SYMTAB = 2

/** The numbers in a header that describe the whole file. */
export interface ElfHeader {
  /** e_ident[EI_ABIVERSION] */
  readonly abiVersion: number
  /** e_type: 1 is relocatable, 2 executable */
  readonly type: number
  /** e_machine */
  readonly machine: number
  /** e_flags */
  readonly flags: number
}

interface ElfSection {
  readonly name: string
  readonly type: number
  /** index of a related section; of a symbol table, the section with its names */
  readonly link: number
  readonly content: DataView
}

interface ElfSymbol {
  readonly name: string
  /** st_other */
  readonly other: number
}

/** An ELF file of 64 bits, in little-endian order. The constructor throws FormatError for others and truncated ones. */
export class ElfFile {
  readonly header: ElfHeader
  readonly sections: readonly ElfSection[]
  private readonly view: DataView

  constructor(bytes: Uint8Array) {
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
    const { view } = this
    this.part(0, HEADER_BYTES, 'header')
    if (view.getUint8(4) !== 2 || view.getUint8(5) !== 1) {
      throw new FormatError('the ELF image has another layout than 64 bits in little-endian order')
    }
    this.header = {
      abiVersion: view.getUint8(8),
      type: view.getUint16(16, true),
      machine: view.getUint16(18, true),
      flags: view.getUint32(48, true),
    }
    this.checkSegments()
    this.sections = this.readSections()
  }

  /** All symbols, in the order of their tables. */
  symbols(): ElfSymbol[] {
    const tables = this.sections.filter(section => section.type === SHT_SYMTAB)
    return tables.flatMap(({ content, link }) => {
      const names = this.sections[link]?.content
      if (names === undefined) throw new FormatError('the ELF image has symbols without names')
      return Array.from({ length: Math.floor(content.byteLength / SYMBOL_BYTES) }, (_, index) => {
        const start = index * SYMBOL_BYTES
        return { name: textAt(names, content.getUint32(start, true)), other: content.getUint8(start + 5) }
      })
    })
  }

  private checkSegments(): void {
    const { view } = this
    const [start, bytes, count] = [this.wide(32), view.getUint16(54, true), view.getUint16(56, true)]
    if (count === 0) return
    this.checkEntry(bytes, SEGMENT_BYTES)
    this.part(start, bytes * count, 'table of segments')
    for (let entry = start; entry < start + bytes * count; entry += bytes) {
      this.part(this.wide(entry + 8), this.wide(entry + 32), 'a segment')
    }
  }

  private readSections(): ElfSection[] {
    const { view } = this
    const [start, bytes, count] = [this.wide(40), view.getUint16(58, true), view.getUint16(60, true)]
    if (count === 0) return []
    this.checkEntry(bytes, SECTION_BYTES)
    this.part(start, bytes * count, 'table of sections')
    const entries = Array.from({ length: count }, (_, index) => start + index * bytes)
    const contents = entries.map(entry => {
      const isEmpty = view.getUint32(entry + 4, true) === SHT_NOBITS
      return this.part(isEmpty ? 0 : this.wide(entry + 24), isEmpty ? 0 : this.wide(entry + 32), 'a section')
    })
    const names = contents[view.getUint16(62, true)]
    if (names === undefined) throw new FormatError('the ELF image has sections without names')
    return entries.map((entry, index) => ({
      name: textAt(names, view.getUint32(entry, true)),
      type: view.getUint32(entry + 4, true),
      link: view.getUint32(entry + 40, true),
      content: contents[index],
    }))
  }

  /** A number of 64 bits. One that is not exact lies outside every image. */
  private wide(offset: number): number {
    return Number(this.view.getBigUint64(offset, true))
  }

  private checkEntry(bytes: number, least: number): void {
    if (bytes < least) throw new FormatError(`the ELF image has table entries of ${bytes} bytes instead of ${least}`)
  }

  private part(start: number, bytes: number, what: string): DataView {
    const { buffer, byteOffset, byteLength } = this.view
    if (start + bytes <= byteLength) return new DataView(buffer, byteOffset + start, bytes)
    throw new FormatError(
      `the ELF image is truncated: ${what} needs the bytes up to ${start + bytes}, and there are ${byteLength}`,
    )
  }
}

/** The text at an offset of a table of names, up to its zero byte. */
function textAt(names: DataView, offset: number): string {
  const bytes = new Uint8Array(names.buffer, names.byteOffset, names.byteLength)
  const end = bytes.indexOf(0, offset)
  if (offset >= bytes.length || end === -1) throw new FormatError('the ELF image has a name outside of its table')
  return new TextDecoder().decode(bytes.subarray(offset, end))
}
