// Writes messages of Protocol Buffers: varints, text, and messages within messages.

import { assert } from '../../../core/base/assert.js'

const FIRST_CAPACITY = 256
const VARINT = 0
const LENGTH_DELIMITED = 2
const MOST_VARINT_BYTES = 10
const MOST_VARINT = 2 ** 64

export class ProtobufMessage {
  private buffer = Buffer.allocUnsafe(FIRST_CAPACITY)
  private at = 0

  /** A whole number from 0; one above 2^53 is as exact as a number of JavaScript. */
  number(field: number, value: number): this {
    this.makeRoom(2 * MOST_VARINT_BYTES)
    this.varint(field * 8 + VARINT)
    this.varint(value)
    return this
  }

  text(field: number, value: string): this {
    return this.bytes(field, Buffer.from(value))
  }

  message(field: number, value: ProtobufMessage): this {
    return this.bytes(field, value.finish())
  }

  /** A repeated field of whole numbers. */
  packed(field: number, values: readonly number[]): this {
    const inside = new ProtobufMessage()
    inside.makeRoom(MOST_VARINT_BYTES * values.length)
    for (const value of values) inside.varint(value)
    return this.bytes(field, inside.finish())
  }

  /** The bytes so far; they change with the message. */
  finish(): Buffer {
    return this.buffer.subarray(0, this.at)
  }

  private bytes(field: number, value: Buffer): this {
    this.makeRoom(2 * MOST_VARINT_BYTES + value.length)
    this.varint(field * 8 + LENGTH_DELIMITED)
    this.varint(value.length)
    this.at += value.copy(this.buffer, this.at)
    return this
  }

  private varint(value: number): void {
    assert(Number.isInteger(value) && value >= 0 && value < MOST_VARINT, `${value} is a whole number of 64 bits`)
    let rest = value
    while (rest >= 128) {
      this.buffer[this.at++] = (rest % 128) + 128
      rest = Math.floor(rest / 128)
    }
    this.buffer[this.at++] = rest
  }

  private makeRoom(bytes: number): void {
    if (this.at + bytes <= this.buffer.length) return
    const larger = Buffer.allocUnsafe(2 * this.buffer.length + bytes)
    this.buffer.copy(larger, 0, 0, this.at)
    this.buffer = larger
  }
}
