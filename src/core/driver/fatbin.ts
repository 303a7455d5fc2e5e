// Reads a fatbin before it is loaded: which images it holds. A fatbin has a header of 16 bytes and then, one after
// another, cubins and PTX texts, each behind a header of its own. The driver chooses one of them. NVIDIA publishes the
// first header (`fatBinaryHeader` in CUDA's older fatbinary.h); the fields of an image's header are those that
// `cuobjdump -lelf -lptx` and builds with different options of nvcc show.

import { FormatError } from '../base/errors.js'

export interface FatbinImage {
  readonly kind: 'ptx' | 'cubin'
  /** 90 for sm_90 and compute_90 */
  readonly architecture: number
  /** null if it is compressed */
  readonly content: Uint8Array | null
}

const MAGIC = 0xba55ed50
const HEADER_BYTES = 16
/** up to and with the flags, the last field that is read */
const IMAGE_HEADER_BYTES = 48
const KINDS: Readonly<Record<number, FatbinImage['kind']>> = { 1: 'ptx', 2: 'cubin' }
/** flags of an image: compressed by LZ4, or by Zstandard from CUDA 12.8 on */
const COMPRESSED = 0x2000 | 0x8000

/** Whether bytes begin as a fatbin does. */
export function isFatbin(bytes: Uint8Array): boolean {
  return bytes.length >= 4 && new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true) === MAGIC
}

/** The cubins and PTX texts, in their order. Throws FormatError for a truncated fatbin, or one with neither. */
export function readFatbin(bytes: Uint8Array): FatbinImage[] {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  checkWithin(bytes, HEADER_BYTES)
  let start = view.getUint16(6, true)
  const end = start + Number(view.getBigUint64(8, true))
  checkWithin(bytes, end)
  const images: FatbinImage[] = []
  while (start < end) {
    checkWithin(bytes, start + IMAGE_HEADER_BYTES)
    const content = start + view.getUint32(start + 4, true)
    const next = content + Number(view.getBigUint64(start + 8, true))
    if (content < start + IMAGE_HEADER_BYTES) throw new FormatError('the fatbin has an image without a header')
    checkWithin(bytes, next)
    const kind = KINDS[view.getUint16(start, true)]
    const isCompressed = (view.getUint32(start + 40, true) & COMPRESSED) !== 0
    if (kind !== undefined) {
      const architecture = view.getUint32(start + 28, true)
      images.push({ kind, architecture, content: isCompressed ? null : bytes.subarray(content, next) })
    }
    start = next
  }
  if (images.length === 0) throw new FormatError('the fatbin holds neither a cubin nor PTX')
  return images
}

function checkWithin(bytes: Uint8Array, end: number): void {
  if (end <= bytes.length) return
  throw new FormatError(`the fatbin is truncated: it needs the bytes up to ${end}, and there are ${bytes.length}`)
}
