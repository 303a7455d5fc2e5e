// Modules of this package that the reader leaves out: a page reaches no GPU, compiles and launches no kernel, serves no
// pool, opens no socket, shares no memory with other threads or processes, and replays with pools of few kinds.

/** No driver is an instance of it. */
export function NativeDriver(): void {}

NativeDriver.open = (): never => {
  throw new Error('a page reaches no GPU')
}

export function serveNew(): void {}

export class WarmUp {
  runWhile(): void {}
}

export const MOST_PATH_BYTES = 0

function refuseSocket(): never {
  throw new Error('a page opens no socket')
}

export const UnixSocket = { listenAt: refuseSocket, connectTo: refuseSocket }

/** A simulated device of a page exports no memory. */
export const passesDescriptors = (): boolean => false

export { refuseSocket as closeDescriptor, refuseSocket as duplicateDescriptor, refuseSocket as openSystem }

/** Only the page uses its devices. */
export const holdersOf = (): null => null

function refuseSharing(): never {
  throw new Error('a page has no other thread or process')
}

export {
  refuseSharing as checkShare,
  refuseSharing as FileContents,
  refuseSharing as InterprocessBuffer,
  refuseSharing as Machine,
  refuseSharing as memoryFile,
  refuseSharing as passDescriptor,
  refuseSharing as tryLock,
  refuseSharing as newSharedArena,
  refuseSharing as SharedArenaPool,
  refuseSharing as newSharedBlocks,
  refuseSharing as newSharedHost,
  refuseSharing as SharedHostPool,
  refuseSharing as SharedPool,
}

/** A device has one from its start. */
export class SharedPools {
  end(): void {}
}

export const SHARED_VERSION = 0

/** A replay reads no memory, and pins none. */
export class HostPlaces {}

export const StagingBuffers = { of: () => ({ close: () => {} }) }

/** A replay makes caching pools and pools of the driver only. */
function refusePool(): never {
  throw new Error('a replay makes no pool of this kind')
}

/** A replay allocates one block at a time, and uploads nothing. */
export {
  refusePool as allocateMany,
  refusePool as tryAllocateMany,
  refusePool as uploadMany,
  refusePool as ArenaPool,
  refusePool as ArenaQueue,
  refusePool as BlockPool,
  refusePool as checkRegistrable,
  refusePool as DebugPool,
  refusePool as GrowableBuffer,
  refusePool as HostPool,
  refusePool as ImportedPool,
  refusePool as RegistrableSegments,
  refusePool as Shelf,
  refusePool as sleeperOf,
  refusePool as sourceOf,
}

/** Nothing of a page is captured in a graph. */
function refuseGroup(): never {
  throw new Error('a page captures no graphs')
}

export {
  refuseGroup as Capture,
  refuseGroup as captureWork,
  refuseGroup as CaptureArena,
  refuseGroup as GraphGroup,
  refuseGroup as GroupArena,
  refuseGroup as groupConfig,
  refuseGroup as groupOf,
}

/** A pool of a page has no groups of graphs, and no memory beside its pieces. */
export class GraphGroups {
  readonly reservedBytes = 0
  readonly isFull = false
  giveBack(): number {
    return 0
  }
  heapIn(): void {}
  ranges(): [] {
    return []
  }
  lose(): void {}
  check(): void {}
}

export class SideRanges {
  segments(): [] {
    return []
  }
  numberAt(): null {
    return null
  }
  applyAccess(): void {}
  close(): void {}
  check(): void {}
}

function refuseCompiling(): never {
  throw new Error('a page compiles and launches no kernel')
}

export { refuseCompiling as Module }

/** A device has one from its start. */
export class Compiler {}

/** A simulated device has one from its start. */
export class Modules {
  removeOf(): void {}
}

/** No work of a page waits for another process. */
export class Gate {}

/** A page plays no library of NVIDIA. */
export class LibraryDevice {}

/** The memory of a page is on no device. */
function refuseManaged(): never {
  throw new Error('a page has no managed memory')
}

export {
  refuseManaged as adviceNumber,
  refuseManaged as checkManaged,
  refuseManaged as discardInDefaultStream,
  refuseManaged as explainedDiscard,
  refuseManaged as numberOf,
  refuseManaged as wholePages,
}
