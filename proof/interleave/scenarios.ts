// Which scenarios there are, and which of them the project does not hold to yet.

/** Their files, which are run rewritten. */
export const SCENARIO_FILES = ['lock', 'roster', 'mailbox', 'bump', 'streams', 'inboxes', 'shared-pool', 'pool'].map(
  name => `proof/interleave/scenarios/${name}.ts`,
)

/** By name of a scenario, with the kind of processor where it is one only: why it is no test, which is what has to change first. */
const WAITING: Readonly<Record<string, string>> = {
  'a question that is cut short does not leave its answer to the next one': 'questions carry no number yet',
  'threads come and go, and each has its own answers': 'a number is given away before its last answer is there',
  'a lock is not taken from whoever has the number of the dead': 'the word of a lock does not count who had it',
  'the numbers of the dead are given away once each': 'a number carries no generation yet',
  'every block that is sent arrives once, arm64': 'a parcel is looked at by plain loads, which are not in order there',
}

/** Whether a scenario is no test yet on a kind of processor. */
export function isWaiting(name: string, arch: string): boolean {
  return WAITING[name] !== undefined || WAITING[`${name}, ${arch}`] !== undefined
}
