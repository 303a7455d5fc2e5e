// Stand-ins in a browser for all that the reader imports from modules of Node. One file has all modules, since their
// names do not clash. The build fails at a missing name. A replay on a simulated device never calls most of them.

/** Throws when it is called. */
function notHere(name: string): () => never {
  return () => {
    throw new Error(`${name} of Node does not exist in a browser`)
  }
}

// One thread, without others to talk to.
export const isMainThread = true
export const threadId = 0
export const markAsUntransferable = (): void => {}
export const { BroadcastChannel, MessageChannel } = globalThis
export const Worker = notHere('Worker')
export const receiveMessageOnPort = notHere('receiveMessageOnPort')

/** A page has one realm. */
export const types = {
  isArrayBuffer: (value: unknown) => value instanceof ArrayBuffer,
  isSharedArrayBuffer: (value: unknown) => value instanceof SharedArrayBuffer,
  isFloat64Array: (value: unknown) => value instanceof Float64Array,
  isInt32Array: (value: unknown) => value instanceof Int32Array,
  isPromise: (value: unknown) => value instanceof Promise,
}

// A page has no subscribers.
export const channel = () => ({ hasSubscribers: false })

/** Runs in no scope; a replay has no tags. */
export class AsyncLocalStorage {
  getStore(): undefined {
    return undefined
  }
}

export const setTimeout = (ms: number): Promise<void> => new Promise(done => globalThis.setTimeout(done, ms))
export const setImmediate = (): Promise<void> => setTimeout(0)

/** The most that host memory of a simulated device may take. */
const HOST_BYTES = 2 ** 34
export const totalmem = (): number => HOST_BYTES
export const freemem = totalmem
export const constants = { MAX_LENGTH: 2 ** 32 }

/** A name that no other has; browsers lack randomUUID in pages opened as files. */
export const randomUUID = (): string => crypto.getRandomValues(new Uint32Array(4)).join('-')

// Files, sockets and secrets.
export const existsSync = (): boolean => false
export const accessSync = notHere('accessSync')
export const basename = notHere('basename')
export const chmodSync = notHere('chmodSync')
export const closeSync = notHere('closeSync')
export const connect = notHere('connect')
export const createHash = notHere('createHash')
export const createServer = notHere('createServer')
export const fileURLToPath = notHere('fileURLToPath')
export const fstatSync = notHere('fstatSync')
export const getSystemErrorMap = notHere('getSystemErrorMap')
export const gunzipSync = notHere('gunzipSync')
export const isAbsolute = notHere('isAbsolute')
export const join = notHere('join')
export const lstatSync = notHere('lstatSync')
export const mkdirSync = notHere('mkdirSync')
export const openSync = notHere('openSync')
export const pathToFileURL = notHere('pathToFileURL')
export const randomBytes = notHere('randomBytes')
export const randomInt = notHere('randomInt')
export const readFileSync = notHere('readFileSync')
export const readSync = notHere('readSync')
export const readdirSync = notHere('readdirSync')
export const readlinkSync = notHere('readlinkSync')
export const realpathSync = notHere('realpathSync')
export const rmSync = notHere('rmSync')
export const statSync = notHere('statSync')
export const timingSafeEqual = notHere('timingSafeEqual')
export const tmpdir = notHere('tmpdir')
export const writeSync = notHere('writeSync')
