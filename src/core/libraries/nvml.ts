// Asks NVML about a device: the processes that hold its memory, and its persistence mode. Where NVML is missing or
// refuses, as in some containers, under WSL and with an old driver, the answer is null or lacks a part.

import { LastingAnswers } from './lasting-answers.js'
import { type NvmlFunction, type NvmlFunctions, openNvmlLibrary } from './nvml-library.js'

/** The answer of NVML about one device. */
export interface NvmlAnswer {
  /** all processes that use the device, this one too; empty if NVML does not list them */
  readonly processes: readonly {
    readonly pid: number
    /** bytes of the device's memory; null if NVML does not tell them */
    readonly bytes: number | null
  }[]
  /** false if the driver gives the device up, and all its memory, when the last process ends; null if unknown */
  readonly persistenceMode: boolean | null
}

const NVML_SUCCESS = 0
const NVML_ERROR_INSUFFICIENT_SIZE = 7
const NVML_VALUE_NOT_AVAILABLE = 2n ** 64n - 1n
/** nvmlProcessInfo_t: an unsigned int, padding, an unsigned long long, and two unsigned ints. */
const INFO_BYTES = 24
const BYTES_OFFSET = 8
/** Room for processes that start between the count and the list. */
const MORE_PROCESSES = 16
/** Lists that were too short before NVML counts as refusing. */
const MOST_TRIES = 4

/** NVML, with its last answer for each device. */
export class Nvml {
  private readonly answers: LastingAnswers<NvmlAnswer | null>

  constructor(
    private readonly functions: NvmlFunctions,
    now?: () => number,
  ) {
    this.answers = new LastingAnswers(uuid => this.askNow(uuid), now)
  }

  /**
   * The answer about the GPU or MIG device with a uuid as by `uuidText`; null if NVML refuses. A question takes
   * milliseconds, and the answer may be seconds old. NVML is shut down after each question: while it has a device open,
   * that device does not go idle.
   */
  ask(uuid: string): NvmlAnswer | null {
    return this.answers.about(uuid)
  }

  private askNow(uuid: string): NvmlAnswer | null {
    const { functions } = this
    if (functions.nvmlInit_v2() !== NVML_SUCCESS) return null
    try {
      const device = [0]
      const isFound = ['GPU', 'MIG'].some(
        kind => functions.nvmlDeviceGetHandleByUUID(`${kind}-${uuid}`, device) === NVML_SUCCESS,
      )
      if (!isFound) return null
      const bytesByPid = new Map<number, number | null>()
      addProcesses(functions.nvmlDeviceGetComputeRunningProcesses_v3, device[0], bytesByPid)
      addProcesses(functions.nvmlDeviceGetGraphicsRunningProcesses_v3, device[0], bytesByPid)
      const mode = [0]
      const isTold = functions.nvmlDeviceGetPersistenceMode(device[0], mode) === NVML_SUCCESS
      return {
        processes: [...bytesByPid].map(([pid, bytes]) => ({ pid, bytes })),
        persistenceMode: isTold ? mode[0] === 1 : null,
      }
    } finally {
      functions.nvmlShutdown()
    }
  }
}

/** Adds the processes of one kind. One that computes and draws is in both lists, each with all its bytes. */
function addProcesses(list: NvmlFunction, device: number, bytesByPid: Map<number, number | null>): void {
  const count = [0]
  let infos = new Uint8Array(0)
  let result = list(device, count, null)
  for (let tries = 0; result === NVML_ERROR_INSUFFICIENT_SIZE && tries < MOST_TRIES; tries++) {
    count[0] += MORE_PROCESSES
    infos = new Uint8Array(count[0] * INFO_BYTES)
    result = list(device, count, infos)
  }
  if (result !== NVML_SUCCESS) return
  const view = new DataView(infos.buffer)
  for (let at = 0; at < Math.min(count[0] * INFO_BYTES, infos.length); at += INFO_BYTES) {
    const bytes = view.getBigUint64(at + BYTES_OFFSET, true)
    bytesByPid.set(view.getUint32(at, true), bytes === NVML_VALUE_NOT_AVAILABLE ? null : Number(bytes))
  }
}

/** NVML of this thread; null without its library, and undefined before the first question. */
let opened: Nvml | null | undefined

/** The answer of `Nvml.ask`; null without NVML. The first call opens its library. */
export function askNvml(uuid: string): NvmlAnswer | null {
  if (opened === undefined) {
    try {
      opened = new Nvml(openNvmlLibrary())
    } catch {
      opened = null // no library, or one that is too old
    }
  }
  return opened?.ask(uuid) ?? null
}
