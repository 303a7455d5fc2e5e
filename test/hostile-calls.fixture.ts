// The public calls that hostile programs make, by the kind of thing that has them.

/** The kinds of arguments. */
export type Kind =
  | 'bytes'
  | 'list'
  | 'small'
  | 'count'
  | 'value'
  | 'alignment'
  | 'stream'
  | 'memory'
  | 'copied'
  | 'capturable'
  | 'event'
  | 'type'
  | 'typed'
  | 'wait'
  | 'sleep'
  | 'wake'
  | 'mode'
  | 'callback'
  | 'observer'
  | 'mark'
  | 'device'
  | 'access'
  | 'ptr'
  | 'text'
  | 'use'
  | 'size'
  | 'shape'
  | 'answer'
  | 'timing'

type Call = readonly Kind[]
/** Calls by the name of the method; `=name` sets a property, and `.name` reads one. */
type Calls = Readonly<Record<string, Call>>

const POOL: Calls = {
  allocate: ['bytes', 'stream', 'alignment'],
  tryAllocate: ['bytes', 'stream', 'alignment'],
  allocateMany: ['list', 'stream'],
  tryAllocateMany: ['list', 'stream'],
  free: ['memory', 'stream'],
  allocateArray: ['type', 'count', 'stream'],
  zeros: ['type', 'count', 'stream'],
  upload: ['typed', 'stream'],
  uploadMany: ['list', 'stream'],
  whenAvailable: ['bytes', 'wait'],
  allocateSoon: ['bytes', 'wait'],
  setAccess: ['device', 'access'],
  trimTo: ['size'],
  reserve: ['bytes'],
  processDeferred: [],
  deallocate: ['ptr', 'stream'],
  sleep: ['sleep'],
  wake: ['wake'],
  observeSegments: ['observer'],
  '=maxPoolBytes': ['size'],
  resetPeaks: [],
  live: [],
  liveByLabel: [],
  segments: [],
  snapshot: [],
  stats: [],
  toString: [],
  toJSON: [],
  beginCapture: ['stream'],
  endCapture: ['stream'],
  reset: ['stream'],
  mark: [],
  rewind: ['mark', 'stream'],
  inScope: ['text', 'callback'],
  statsByTag: [],
  scope: [],
  transfer: ['memory'],
  exportPointer: ['memory'],
  '=releaseThresholdBytes': ['size'],
  allocateAsync: ['bytes', 'stream'],
  deallocateAsync: ['memory', 'stream'],
}

/** The calls of each kind of thing. */
export const CALLS: Readonly<Record<string, Calls>> = {
  pools: POOL,
  buffers: {
    free: ['stream'],
    recordUse: ['stream'],
    noteUse: ['stream', 'text'],
    write: ['typed', 'small'],
    writeSync: ['typed', 'small'],
    read: ['small', 'small'],
    readSync: ['small', 'small'],
    fill: ['value', 'small', 'small'],
    copyFrom: ['copied', 'small', 'small', 'small'],
    copyFromSync: ['copied', 'small', 'small', 'small'],
    subarray: ['small', 'small'],
    '=label': ['text'],
    transfer: [],
    toString: [],
    toJSON: [],
    '.ptr': [],
    '.byteLength': [],
    grow: ['bytes'],
    shrink: ['bytes'],
    array: ['type', 'count'],
    settled: [],
    settleSync: [],
    sleep: ['sleep'],
    wake: ['wake'],
    observeSegments: ['observer'],
    setAccess: ['device', 'access'],
    // of host buffers and host arrays
    view: ['type'],
    copyTo: ['copied', 'small', 'small', 'small'],
    '.bytes': [],
    // of spillable buffers
    use: ['stream', 'use'],
    spill: ['stream'],
  },
  streams: {
    wait: ['event'],
    beginCapture: ['mode'],
    endCapture: [],
    abortCapture: [],
    query: [],
    synchronize: [],
    finished: ['wait'],
    close: [],
    '.priority': [],
    toString: [],
    toJSON: [],
  },
  events: {
    record: ['stream'],
    query: [],
    synchronize: [],
    finished: ['wait'],
    elapsedSince: ['event'],
    transfer: [],
    close: [],
    toString: [],
  },
  graphs: { launch: ['stream'], noteLaunch: ['stream'], close: [], toString: [] },
  queues: { take: ['wait'], use: ['callback', 'wait'], close: ['wait'], toString: [], toJSON: [] },
  leases: { close: [], toString: [] },
  sets: { allocate: ['bytes', 'stream'], spill: ['size', 'stream'], close: [], stats: [], toString: [] },
  kernels: { launch: ['shape'], occupancy: ['small', 'size'], toString: [] },
  devices: {
    createStream: [],
    createEvent: ['timing'],
    finished: ['wait'],
    synchronize: [],
    memoryInfo: [],
    capture: ['capturable', 'callback', 'mode'],
    adoptStream: ['ptr'],
    enablePeerAccess: ['device'],
    canAccessPeer: ['device'],
    createInterprocessBuffer: ['bytes', 'stream'],
    poolFor: ['stream'],
    close: [],
    toString: [],
    toJSON: [],
  },
  signals: { abort: ['answer'] },
  stops: { call: [] },
}

const KINDS: Readonly<Record<string, string>> = {
  Stream: 'streams',
  Event: 'events',
  Graph: 'graphs',
  GraphMemory: 'graphs',
  ArenaQueue: 'queues',
  ArenaLease: 'leases',
  ArenaMark: 'marks',
  SpillableSet: 'sets',
  Kernel: 'kernels',
}

/** The kind of a thing; null for one without calls here. */
export function kindOf(thing: object): string | null {
  const { name } = thing.constructor
  if (name.endsWith('Pool')) return 'pools'
  if (['freed', 'free'].every(each => each in thing)) return 'buffers'
  return KINDS[name] ?? null
}

/** The device that a thing is of; of a buffer, that of its pool. */
export function contextOf(thing: object): unknown {
  const { context, pool } = thing as { context?: unknown; pool?: { context?: unknown } }
  return context ?? pool?.context
}

/** Whether a thing was freed or closed. */
export function isOver(thing: object): boolean {
  const { freed, closed } = thing as { freed?: boolean; closed?: boolean }
  return freed === true || closed === true
}
