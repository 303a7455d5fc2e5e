// Files in memory that can no longer be changed: memfds with all seals. A process reads the file of another process
// without the risk that it changes or shrinks meanwhile.

import { fstatSync, readSync, writeSync } from 'node:fs'
import { DescriptorError } from '../base/errors.js'
import type { Bytes } from '../base/typed-arrays.js'
import { closeDescriptor, openSystem, refusal } from './system-calls.js'

const MFD_CLOEXEC = 1
const MFD_ALLOW_SEALING = 2
const F_ADD_SEALS = 1033
const F_GET_SEALS = 1034
/** F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_WRITE */
const ALL_SEALS = 0x1 | 0x2 | 0x4 | 0x8

/** A file in memory, without a name in any folder. The caller closes the descriptor. */
export function memoryFile(name: string): number {
  const system = openSystem()
  const descriptor = system.calls.memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING)
  if (descriptor < 0) throw refusal(system, 'memfd_create', name)
  return descriptor
}

/** A file in memory with these bytes, and all seals. The caller closes the descriptor. */
export function sealedFile(name: string, bytes: Uint8Array): number {
  const descriptor = memoryFile(name)
  try {
    for (let written = 0; written < bytes.length; ) written += writeSync(descriptor, bytes, written)
    seal(descriptor)
    return descriptor
  } catch (error) {
    closeDescriptor(descriptor)
    throw error
  }
}

/** Gives a file in memory all seals. Throws DescriptorError EBUSY while it is mapped for writing. */
export function seal(descriptor: number): void {
  const system = openSystem()
  if (system.calls.fcntl(descriptor, F_ADD_SEALS, 'int', ALL_SEALS) < 0) throw refusal(system, 'fcntl', 'the seals')
}

/** Whether a descriptor is of a file in memory with all seals. */
export function isSealed(descriptor: number): boolean {
  const seals = openSystem().calls.fcntl(descriptor, F_GET_SEALS, 'int', 0)
  return seals >= 0 && (seals & ALL_SEALS) === ALL_SEALS
}

/** The bytes of a sealed file. Throws DescriptorError for a file without the seals, or with more than `mostBytes`. */
export function readSealed(descriptor: number, mostBytes: number): Bytes {
  const { size } = fstatSync(descriptor)
  if (!isSealed(descriptor)) throw new DescriptorError('fcntl', 'EPERM', 'the file can still be changed; seal it')
  if (size > mostBytes) throw new DescriptorError('read', 'EFBIG', `the file has ${size} bytes, more than ${mostBytes}`)
  const bytes = new Uint8Array(size)
  for (let read = 0; read < size; ) read += readSync(descriptor, bytes, read, size - read, read)
  return bytes
}
