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

/** By name of a scenario, with the kind of processor where it is one only: why it is no test, which is what has to change first. */
const WAITING: Readonly<Record<string, string>> = {}

/** Whether a scenario is no test yet on a kind of processor. */
export function isWaiting(name: string, arch: string): boolean {
  return WAITING[name] !== undefined || WAITING[`${name}, ${arch}`] !== undefined
}
