// Memory and pools that are shared as file descriptors; virtual-memory.ts and pools/ use it. Each shared thing has a
// file, whose descriptors are copies of one open file. As on a GPU, a descriptor alone keeps its memory.
//
// Without a machine the file is empty and nameless, and means something in this process only. It is locked. Once the
// last handle and mapping are gone, a lock that can be taken tells that the last descriptor was closed. On a machine
// (machine/machine.ts) the file is the memory.

import { closeSync, fstatSync, openSync } from 'node:fs'
import { tryLock } from '../../../libraries/file-locks.js'
import { memoryFile } from '../../../libraries/sealed-memory.js'
import { closeDescriptor, duplicateDescriptor } from '../../../libraries/system-calls.js'
import {
  CU_MEM_HANDLE_TYPE_NONE,
  CU_MEM_HANDLE_TYPE_FABRIC as FABRIC,
  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR as POSIX,
  RESULT,
} from '../../constants.js'
import type { CallInterceptor } from '../call-interceptor.js'
import type { SimulatedDevice } from '../device.js'
import { FileContents } from '../machine/file-contents.js'
import type { Machine } from '../machine/machine.js'
import type { CompleteOptions } from '../options.js'
import { PhysicalAllocation } from './reservation.js'

/** A thing whose last handle is gone: `free` gives its memory back once no descriptor keeps it. */
interface Orphan {
  readonly free: () => void
  /** another open file of the same file */
  readonly watcher: number
}

/** The table of exports. */
export class Shareables {
  /** by file: what it stands for */
  private readonly entries = new Map<string, object>()
  /** the own descriptor of each shared thing */
  private readonly descriptors = new Map<object, number>()
  private readonly orphans = new Map<object, Orphan>()

  constructor(
    private readonly interceptor: CallInterceptor,
    private readonly supported: boolean,
    private readonly fabric: CompleteOptions['fabricHandles'],
    private readonly devices: readonly SimulatedDevice[],
    private readonly machine: Machine | null,
  ) {}

  /** Refuses handle types that memory cannot be made for. */
  checkTypes(handleTypes: number, supported = this.supported, fabric = this.fabric): void {
    this.checkKnownTypes(handleTypes)
    const isFabric = (handleTypes & FABRIC) !== 0
    const isPosix = (handleTypes & POSIX) !== 0
    if ((isPosix && !supported) || (isFabric && fabric === false)) {
      const fact = `this device has no handles of the types ${handleTypes}`
      throw this.interceptor.refuse(RESULT.CUDA_ERROR_NOT_SUPPORTED, fact)
    }
    if (!isFabric || fabric === true) return
    throw this.interceptor.refuse(RESULT.CUDA_ERROR_NOT_PERMITTED, 'this process has no IMEX channel')
  }

  /** Refuses handle types that no device of this system has. */
  checkKnownTypes(handleTypes: number): void {
    if ((handleTypes & ~(POSIX | FABRIC)) === 0) return
    throw this.interceptor.invalid(`no handle types of this system: ${handleTypes}`)
  }

  /** The same for pools, which a machine does not share. */
  checkPoolTypes(handleTypes: number): void {
    this.checkTypes(handleTypes, this.supported && this.machine === null, false)
  }

  /** New memory; null if the device has not enough. */
  create(device: SimulatedDevice, bytes: number, handleTypes: number): PhysicalAllocation | null {
    const { machine } = this
    if (machine === null || handleTypes === CU_MEM_HANDLE_TYPE_NONE) {
      const contents = device.take(bytes)
      return contents && new PhysicalAllocation(device, contents, handleTypes)
    }
    const descriptor = this.interceptor.onSystem(() => machine.create(device.ordinal, bytes))
    return descriptor === null ? null : this.inFile(descriptor, bytes, device, handleTypes)
  }

  /** A new descriptor of type `handleType` for `entry`, which was made with `handleTypes`. */
  export(entry: object, handleTypes: number, handleType: number): number {
    if (handleType !== POSIX || (handleTypes & POSIX) === 0) {
      const fact = `made with the handle types ${handleTypes}, it cannot be exported as ${handleType}`
      throw this.interceptor.invalid(fact)
    }
    return this.interceptor.onSystem(() => duplicateDescriptor(this.descriptors.get(entry) ?? this.addFile(entry)))
  }

  /** The exported object of a descriptor, which must be a `kind`. */
  import<T extends object>(descriptor: number, handleType: number, kind: new (...args: never[]) => T): T {
    const entry = handleType === POSIX ? this.interceptor.onSystem(() => this.find(descriptor)) : undefined
    if (entry instanceof kind) return entry
    const fact = `${descriptor} is no descriptor of type ${handleType}, of another thing, or of memory that is gone`
    throw this.interceptor.invalid(fact)
  }

  /** The last handle of `entry` is gone: calls `free` now, or after the last descriptor was closed. */
  release(entry: object, free: () => void): void {
    const own = this.descriptors.get(entry)
    if (own === undefined) free()
    else if (this.machine !== null) {
      this.forget(entry)
      try {
        this.machine.clean()
      } catch {
        // no room for open files, for example: the next count of bytes removes the file
      }
    } else {
      this.orphans.set(entry, { free, watcher: openSync(`/proc/self/fd/${own}`, 'r') })
      this.descriptors.delete(entry)
      closeDescriptor(own)
      this.settle()
    }
  }

  /** Gives memory back whose last descriptor was closed. */
  settle(): void {
    for (const [entry, { free, watcher }] of this.orphans) {
      if (!tryLock(watcher)) continue
      this.entries.delete(keyOf(watcher))
      this.orphans.delete(entry)
      closeSync(watcher)
      free()
    }
  }

  /** Closes the own descriptor of `entry`. What it stood for cannot be imported any more. */
  forget(entry: object): void {
    const own = this.descriptors.get(entry)
    if (own === undefined) return
    this.entries.delete(keyOf(own))
    this.descriptors.delete(entry)
    closeDescriptor(own)
  }

  /** Makes the nameless file of `entry`. */
  private addFile(entry: object): number {
    const descriptor = memoryFile('cuda-mempool')
    tryLock(descriptor)
    this.note(entry, descriptor)
    return descriptor
  }

  private note(entry: object, descriptor: number): void {
    this.entries.set(keyOf(descriptor), entry)
    this.descriptors.set(entry, descriptor)
  }

  private find(descriptor: number): object | undefined {
    const entry = this.entries.get(keyOf(descriptor))
    const orphan = entry && this.orphans.get(entry)
    if (orphan !== undefined) {
      this.descriptors.set(entry!, duplicateDescriptor(descriptor))
      this.orphans.delete(entry!)
      closeSync(orphan.watcher)
    }
    return entry ?? this.findInMachine(descriptor)
  }

  /** Memory that another process has made, as memory of this one. */
  private findInMachine(descriptor: number): PhysicalAllocation | undefined {
    const found = this.machine?.find(descriptor) ?? null
    const device = this.devices[found?.ordinal ?? -1]
    if (found === null || device === undefined) return undefined
    const allocation = this.inFile(duplicateDescriptor(descriptor), found.bytes, device, POSIX)
    allocation.references = 0 // the import adds the first
    return allocation
  }

  private inFile(descriptor: number, bytes: number, device: SimulatedDevice, handleTypes: number): PhysicalAllocation {
    const allocation = new PhysicalAllocation(device, new FileContents(descriptor, bytes), handleTypes)
    this.note(allocation, descriptor)
    return allocation
  }
}

/** Names the file of a descriptor. */
function keyOf(descriptor: number): string {
  const { dev, ino } = fstatSync(descriptor, { bigint: true })
  return `${dev}:${ino}`
}
