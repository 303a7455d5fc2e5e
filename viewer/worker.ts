// The page's worker: paints and computes, so that the page itself never waits.

import type { RequestName } from './protocol.js'
import { Session } from './session.js'

interface WorkerScope {
  onmessage: ((message: { data: { id: number; name: RequestName; asked: never } }) => void) | null
  postMessage(message: unknown, transfer: Transferable[]): void
}

const scope = globalThis as unknown as WorkerScope
const session = new Session()

scope.onmessage = async ({ data: { id, name, asked } }) => {
  try {
    const answer: unknown = await session[name](asked)
    scope.postMessage({ id, answer }, buffersOf(answer))
  } catch (error) {
    scope.postMessage({ id, error: error instanceof Error ? error.message : String(error) }, [])
  }
}

/** Large answers move to the page without a copy, which would block it. Columns of the picture itself stay. */
function buffersOf(answer: unknown): Transferable[] {
  if (typeof answer !== 'object' || answer === null) return []
  const {
    timeUs,
    stacked,
    maps = [],
  } = answer as { timeUs?: Float64Array; stacked?: Uint32Array; maps?: Uint32Array[] }
  return [timeUs, stacked, ...maps].flatMap(each => (each === undefined ? [] : [each.buffer as ArrayBuffer]))
}
