// One simulated machine for several processes: a folder. Its files are
// - `machine`: its number and the memory of each device, as the first process wrote them. Its lock guards all else.
// - `memory-FILE-DEVICE`: exportable memory. The descriptors of all processes are copies of one open file.
// - `process-PID-…`: the bytes of other memory that a process has on each device.
//
// Each file is locked by its open file. A lock that can be taken thus tells that no process holds the file any more.
// The process that takes it removes the file. So killed processes leave nothing. A leak is a file that stays locked.

import { randomInt, randomUUID } from 'node:crypto'
import * as fs from 'node:fs'
import { join } from 'node:path'
import { OutOfRangeError } from '../../../base/argument-errors.js'
import { formatBytes } from '../../../base/bytes.js'
import { NoDeviceError } from '../../../base/errors.js'
import { tryLock, withLock } from '../../../libraries/file-locks.js'
import { duplicateDescriptor } from '../../../libraries/system-calls.js'
import type { Ledger } from '../device.js'
import { checkFolder, onFolder } from './machine-folder.js'

const MOST_DEVICES = 16
const PRIVATE_BYTES = 8 * MOST_DEVICES

/** Contents of the file `machine`. */
interface Facts {
  readonly id: number
  readonly capacityBytes: number
}

/** by folder: the machines that this thread has open */
const machines = new Map<string, Machine>()

/** The machine in one folder, as this thread sees it. It stays open while the process lives. */
export class Machine {
  /** bytes of memory on each device that cannot be exported, in this thread */
  private readonly privateBytes = new Float64Array(MOST_DEVICES)
  private readonly ownName = `process-${process.pid}-${randomUUID()}`
  private readonly own: number

  private constructor(
    private readonly folder: string,
    /** an open file of `machine` */
    private readonly guard: number,
    /** tells machines apart, and stays */
    readonly id: number,
    /** memory of each device */
    readonly capacityBytes: number,
  ) {
    this.own = withLock(guard, () => this.newFile(this.ownName, PRIVATE_BYTES))
    this.addPrivate(0, 0) // so that no later write needs space
  }

  /**
   * Opens the machine in `folder`, and makes it with devices of `capacityBytes` if the folder is empty. Throws
   * NoDeviceError for a bad folder, and RangeError if the machine has other devices and `isWanted`.
   */
  static open(folder: string, capacityBytes: number, isWanted: boolean): Machine {
    const path = checkFolder(folder)
    const guard = onFolder(path, () => fs.openSync(join(path, 'machine'), 'a+', 0o600))
    const known = machines.get(path)
    const isSame = known !== undefined && fs.fstatSync(known.guard).ino === fs.fstatSync(guard).ino
    if (isSame) fs.closeSync(guard)
    const machine = isSame ? known : onFolder(path, () => Machine.openWith(path, guard, capacityBytes))
    machines.set(path, machine)
    if (!isWanted || machine.capacityBytes === capacityBytes) return machine
    const [has, wants] = [machine.capacityBytes, capacityBytes].map(formatBytes)
    throw new OutOfRangeError(
      `capacityBytes: the simulated machine ${folder} has devices of ${has}, not of ${wants}; leave capacityBytes out, or name another folder`,
    )
  }

  private static openWith(path: string, guard: number, capacityBytes: number): Machine {
    const facts = withLock(guard, () => {
      const text = fs.readFileSync(join(path, 'machine'), 'utf8')
      if (text !== '') return factsOf(text)
      const fresh: Facts = { id: randomInt(2 ** 31), capacityBytes }
      fs.writeSync(guard, JSON.stringify(fresh))
      return fresh
    })
    if (facts !== null) return new Machine(path, guard, facts.id, facts.capacityBytes)
    throw new NoDeviceError(
      `the file machine in ${path} (CUDA_MEMPOOL_SIMULATED, or the option machine) is of no simulated machine; remove the folder, and make it anew`,
    )
  }

  /** As a reset of the GPUs: all exported memory is gone. Descriptors that are still open cannot be imported. */
  reset(): void {
    withLock(this.guard, () => {
      for (const name of fs.readdirSync(this.folder)) if (name.startsWith('memory-')) fs.rmSync(join(this.folder, name))
    })
  }

  /** Makes exportable memory, and returns its descriptor; null if the device has not enough. */
  create(ordinal: number, bytes: number): number | null {
    return withLock(this.guard, () => {
      if (this.usedBytes()[ordinal] + bytes > this.capacityBytes) return null
      const name = `new-${randomUUID()}`
      const descriptor = this.newFile(name, bytes)
      const { ino } = fs.fstatSync(descriptor, { bigint: true })
      fs.renameSync(join(this.folder, name), join(this.folder, `memory-${ino}-${ordinal}`))
      try {
        return duplicateDescriptor(descriptor) // one that no thread closes at its end
      } finally {
        fs.closeSync(descriptor)
      }
    })
  }

  /** The memory of a descriptor; null for files of no machine or another one, and for memory from before a reset. */
  find(descriptor: number): { readonly ordinal: number; readonly bytes: number } | null {
    const { dev, ino, size } = fs.fstatSync(descriptor, { bigint: true })
    if (dev !== fs.fstatSync(this.guard, { bigint: true }).dev) return null
    const begin = `memory-${ino}-`
    const name = fs.readdirSync(this.folder).find(each => each.startsWith(begin))
    return name === undefined ? null : { ordinal: Number(name.slice(begin.length)), bytes: Number(size) }
  }

  /** Removes the files that no process holds, as each count of bytes does. */
  clean(): void {
    withLock(this.guard, () => this.usedBytes())
  }

  /**
   * The processes on the machine, this one too, and their memory of a device that cannot be exported. Which processes
   * hold exported memory is not known: its descriptors are copies of one open file.
   */
  processesOn(ordinal: number): { readonly pid: number; readonly bytes: number }[] {
    const held = new Map([[process.pid, this.privateBytes[ordinal]]])
    withLock(this.guard, () => {
      this.forEachHeld((kind, number, _, descriptor) => {
        if (kind !== 'process') return
        held.set(number, (held.get(number) ?? 0) + privateBytesIn(descriptor)[ordinal])
      })
    })
    return [...held].map(([pid, bytes]) => ({ pid, bytes }))
  }

  /** Counts memory of one device. */
  ledgerOf(ordinal: number, refused: <T>(work: () => T) => T): Ledger {
    const { guard, capacityBytes } = this
    const usedBytes = () => refused(() => withLock(guard, () => this.usedBytes()[ordinal]))
    return {
      get usedBytes() {
        return usedBytes()
      },
      take: bytes =>
        refused(() =>
          withLock(guard, () => {
            if (this.usedBytes()[ordinal] + bytes > capacityBytes) return false
            this.addPrivate(ordinal, bytes)
            return true
          }),
        ),
      give: bytes => refused(() => this.addPrivate(ordinal, -bytes)),
    }
  }

  /** Bytes in use by device. Called with the lock of the machine. */
  private usedBytes(): Float64Array {
    const used = this.privateBytes.slice()
    this.forEachHeld((kind, _, ordinal, descriptor) => {
      if (kind === 'memory') used[ordinal] += fs.fstatSync(descriptor).size
      else if (kind === 'process') for (const [i, bytes] of privateBytesIn(descriptor).entries()) used[i] += bytes
    })
    return used
  }

  /**
   * Calls `use` with each file that some process holds, and its name in parts, except this thread's own. Removes the
   * other files. Called with the lock of the machine.
   */
  private forEachHeld(use: (kind: string, number: number, ordinal: number, descriptor: number) => void): void {
    for (const name of fs.readdirSync(this.folder)) {
      if (name === 'machine' || name === this.ownName) continue
      const path = join(this.folder, name)
      const descriptor = fs.openSync(path, 'r')
      try {
        const [kind, number, ordinal] = name.split('-')
        if (tryLock(descriptor)) fs.rmSync(path)
        else use(kind, Number(number), Number(ordinal), descriptor)
      } finally {
        fs.closeSync(descriptor)
      }
    }
  }

  private addPrivate(ordinal: number, bytes: number): void {
    this.privateBytes[ordinal] += bytes
    fs.writeSync(this.own, this.privateBytes, 0, PRIVATE_BYTES, 0)
  }

  /** A locked file of `bytes`, all of them zero. */
  private newFile(name: string, bytes: number): number {
    const path = join(this.folder, name)
    const descriptor = fs.openSync(path, 'wx+', 0o600)
    try {
      tryLock(descriptor)
      fs.ftruncateSync(descriptor, bytes)
      return descriptor
    } catch (error) {
      fs.closeSync(descriptor)
      fs.rmSync(path)
      throw error
    }
  }
}

function privateBytesIn(descriptor: number): Float64Array {
  const bytes = new Float64Array(MOST_DEVICES)
  fs.readSync(descriptor, bytes, 0, PRIVATE_BYTES, 0)
  return bytes
}

function factsOf(text: string): Facts | null {
  try {
    const { id, capacityBytes } = JSON.parse(text) ?? {}
    return Number.isInteger(id) && Number.isSafeInteger(capacityBytes) && capacityBytes > 0
      ? { id, capacityBytes }
      : null
  } catch {
    return null
  }
}
