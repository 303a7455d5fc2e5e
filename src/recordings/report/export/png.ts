// PNG for pictures in SVG: eight bits for each of three colours, no filter.

import { deflateSync } from 'node:zlib'

const SIGNATURE = Buffer.from('\x89PNG\r\n\x1a\n', 'latin1')
const [DEPTH, TRUE_COLOUR] = [8, 2]
/** The polynomial of CRC-32 in PNG, its bits in reverse. */
const POLYNOMIAL = 0xedb88320

const CRC_OF_BYTE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let value = byte
  for (let bit = 0; bit < 8; bit++) value = value & 1 ? (value >>> 1) ^ POLYNOMIAL : value >>> 1
  return value
})

/** An image of `rgb`: three bytes for each pixel, row by row from the top. */
export function pngOf(width: number, height: number, rgb: Uint8Array): Buffer {
  const header = Buffer.alloc(13)
  header.writeUInt32BE(width, 0)
  header.writeUInt32BE(height, 4)
  header.set([DEPTH, TRUE_COLOUR], 8)
  const rows = Buffer.alloc(height * (1 + width * 3))
  for (let y = 0; y < height; y++) {
    rows.set(rgb.subarray(y * width * 3, (y + 1) * width * 3), y * (1 + width * 3) + 1)
  }
  return Buffer.concat([SIGNATURE, chunk('IHDR', header), chunk('IDAT', deflateSync(rows)), chunk('IEND')])
}

function chunk(name: string, data: Uint8Array = new Uint8Array(0)): Buffer {
  const named = Buffer.concat([Buffer.from(name, 'latin1'), data])
  const [length, crc] = [Buffer.alloc(4), Buffer.alloc(4)]
  length.writeUInt32BE(data.length)
  let value = 0xffffffff
  for (const byte of named) value = CRC_OF_BYTE[(value ^ byte) & 0xff] ^ (value >>> 8)
  crc.writeUInt32BE((value ^ 0xffffffff) >>> 0)
  return Buffer.concat([length, named, crc])
}
