// Which scenarios there are, and which of them the project does not hold to yet.

/** Their files, which are run rewritten. */
export const SCENARIO_FILES = [
  'lock',
  'roster',
  'mailbox',
  'bump',
  'streams',
  'inboxes',
  'shared-pool',
  'door',
  'front',
  'keeper',
  'pool',
].map(name => `proof/interleave/scenarios/${name}.ts`)

const KEPT =
  'the transform runs a generator that the project keeps for later, as the keeper does with requests, at once'

/** By name of a scenario, with the kind of processor where it is one only: why it is no test, which is what has to change first. */
const WAITING: Readonly<Record<string, string>> = {
  'a buffer is adopted by one thread': KEPT,
  'a program of a shared pool': KEPT,
  'a program whose calls are cut short anywhere': KEPT,
  'a record that comes back is another block': KEPT,
  'a thread dies anywhere, and all that it had goes back': KEPT,
  'a thread is reclaimed under its own name': KEPT,
  'a thread leaves while what it has sent back is taken out': KEPT,
  'blocks of a thread that dies go back once': KEPT,
  'blocks that two threads send back are handed out once': KEPT,
  'new memory has its address when it is handed out': KEPT,
  'nor where threads make barriers themselves': KEPT,
  'threads come and go, and each has its own answers': KEPT,
  'what a thread has the keeper does not take': KEPT,
}

/** Whether a scenario is no test yet on a kind of processor. */
export function isWaiting(name: string, arch: string): boolean {
  return WAITING[name] !== undefined || WAITING[`${name}, ${arch}`] !== undefined
}
