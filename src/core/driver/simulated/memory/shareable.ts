// Exported memory and pools, by simulated file descriptors; virtual-memory.ts and pools/ use it. The simulation is
// one process, so exporter and importer share this table. The numbers belong to no open file, so closing one fails. A
// descriptor does not keep its memory alive: it becomes invalid when the last handle and mapping of the memory are
// gone.

import {
  CU_MEM_HANDLE_TYPE_FABRIC,
  CU_MEM_HANDLE_TYPE_NONE,
  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR as POSIX,
  RESULT,
} from '../../constants.js'
import type { CallInterceptor } from '../call-interceptor.js'

const FIRST_DESCRIPTOR = 0x4000_0000

/** The table of exports. */
export class Shareables {
  private readonly entries = new Map<number, object>()
  private next = FIRST_DESCRIPTOR

  constructor(
    private readonly interceptor: CallInterceptor,
    private readonly supported: boolean,
  ) {}

  /** Refuses handle types that memory cannot be made for. */
  checkTypes(handleTypes: number): void {
    if (handleTypes === CU_MEM_HANDLE_TYPE_NONE || (handleTypes === POSIX && this.supported)) return
    if ((handleTypes & ~(POSIX | CU_MEM_HANDLE_TYPE_FABRIC)) !== 0) {
      throw this.interceptor.invalid(`no handle types of this system: ${handleTypes}`)
    }
    throw this.interceptor.refuse(
      RESULT.CUDA_ERROR_NOT_SUPPORTED,
      `this device has no handles of the types ${handleTypes}`,
    )
  }

  /** A new descriptor of type `handleType` for `entry`, which was made with `handleTypes`. */
  export(entry: object, handleTypes: number, handleType: number): number {
    if (handleType !== POSIX || (handleTypes & POSIX) === 0) {
      const fact = `made with the handle types ${handleTypes}, it cannot be exported as ${handleType}`
      throw this.interceptor.invalid(fact)
    }
    this.entries.set(this.next, entry)
    return this.next++
  }

  /** The exported object of a descriptor, which must be a `kind`. */
  import<T>(descriptor: number, handleType: number, kind: new (...args: never[]) => T): T {
    const entry = this.entries.get(descriptor)
    if (handleType === POSIX && entry instanceof kind) return entry
    const fact = `${descriptor} is no descriptor of type ${handleType}, of another thing, or of memory that is gone`
    throw this.interceptor.invalid(fact)
  }

  /** Invalidates all descriptors of `entry`. */
  forget(entry: object): void {
    for (const [descriptor, other] of this.entries) if (other === entry) this.entries.delete(descriptor)
  }
}
