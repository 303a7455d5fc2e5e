// The globals of Node that the reader uses, for a browser. The bundler puts each where its name is used.

import { Buffer } from 'buffer'

// Browsers without explicit resource management: classes have methods of this name.
if (Symbol.dispose === undefined) Object.assign(Symbol, { dispose: Symbol.for('Symbol.dispose') })

/** Pages opened as files have no shared memory. The reader has one thread, which needs none. */
const shared = (globalThis.SharedArrayBuffer ?? ArrayBuffer) as SharedArrayBufferConstructor
const later = (work: () => void) => setTimeout(work, 0)
const cpuUsage = () => ({ user: performance.now() * 1000, system: 0 })
const process = { env: {}, pid: 1, platform: 'browser', execArgv: [], emitWarning: console.warn, cpuUsage }

export { Buffer, later as setImmediate, process, shared as SharedArrayBuffer }
