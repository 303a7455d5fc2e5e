// Modules of this package that the reader leaves out: a page reaches no GPU, compiles no kernel, serves no pool, opens
// no socket, and shares no arena with other threads.

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

export { refuseSocket as closeDescriptor, refuseSocket as duplicateDescriptor }

function refuseSharing(): never {
  throw new Error('a page has no other thread')
}

export { refuseSharing as newSharedArena, refuseSharing as SharedArenaPool }

function refuseCompiling(): never {
  throw new Error('a page compiles no kernel')
}

export { refuseCompiling as nvrtcPaths, refuseCompiling as openNvrtcLibrary, refuseCompiling as versionOf }
