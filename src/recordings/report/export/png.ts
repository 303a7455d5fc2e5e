// PNG for pictures in SVG: no filter. Images of few colours have a palette, which takes a third of the bytes.

import { deflateSync } from 'node:zlib'

const SIGNATURE = Buffer.from('\x89PNG\r\n\x1a\n', 'latin1')
const [DEPTH, TRUE_COLOUR, PALETTE] = [8, 2, 3]
const MOST_IN_PALETTE = 256
/** The polynomial of CRC-32 in PNG, its bits in reverse. */
const POLYNOMIAL = 0xedb88320

const CRC_OF_BYTE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let value = byte
  for (let bit = 0; bit < 8; bit++) value = value & 1 ? (value >>> 1) ^ POLYNOMIAL : value >>> 1
  return value
})

/** An image of `rgb`: three bytes for each pixel, row by row from the top. */
export function pngOf(width: number, height: number, rgb: Uint8Array): Buffer {
  const indexed = indexedBy(rgb)
  const header = Buffer.alloc(13)
  header.writeUInt32BE(width, 0)
  header.writeUInt32BE(height, 4)
  header.set([DEPTH, indexed === null ? TRUE_COLOUR : PALETTE], 8)
  const [pixels, size] = indexed === null ? [rgb, width * 3] : [indexed.pixels, width]
  const rows = Buffer.alloc(height * (1 + size))
  for (let y = 0; y < height; y++) rows.set(pixels.subarray(y * size, (y + 1) * size), y * (1 + size) + 1)
  const palette = indexed === null ? [] : [chunk('PLTE', indexed.palette)]
  return Buffer.concat([SIGNATURE, chunk('IHDR', header), ...palette, chunk('IDAT', deflateSync(rows)), chunk('IEND')])
}

/** The pixels as places in a palette; null if they have too many colours. */
function indexedBy(rgb: Uint8Array): { readonly pixels: Uint8Array; readonly palette: Uint8Array } | null {
  const places = new Map<number, number>()
  const pixels = new Uint8Array(rgb.length / 3)
  for (let i = 0; i < pixels.length; i++) {
    const colour = (rgb[i * 3] << 16) | (rgb[i * 3 + 1] << 8) | rgb[i * 3 + 2]
    let place = places.get(colour)
    if (place === undefined) {
      place = places.size
      if (place === MOST_IN_PALETTE) return null
      places.set(colour, place)
    }
    pixels[i] = place
  }
  const palette = Uint8Array.from(
    [...places.keys()].flatMap(colour => [colour >> 16, (colour >> 8) & 255, colour & 255]),
  )
  return { pixels, palette }
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
