// Modules of this package that the reader leaves out: a page reaches no GPU, compiles and launches no kernel, serves no
// pool, opens no socket, and shares no memory with other threads or processes.

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
  throw new Error('a page has no other thread or process')
}

export { refuseSharing as InterprocessBuffer, refuseSharing as newSharedArena, refuseSharing as SharedArenaPool }

function refuseCompiling(): never {
  throw new Error('a page compiles and launches no kernel')
}

export {
  refuseCompiling as Kernel,
  refuseCompiling as nvrtcPaths,
  refuseCompiling as openNvrtcLibrary,
  refuseCompiling as versionOf,
}
