/** The files of the scenarios, which are run rewritten. */
export const SCENARIO_FILES = [
  'lock',
  'registry',
  'requests',
  'bump',
  'streams',
  'remote-frees',
  'shared-pool',
  'sending',
  'taking-away',
  'biased-lock',
  'front',
  'pool-server',
  'pool',
  'views',
  'graph-groups',
].map(name => `proof/interleave/scenarios/${name}.ts`)
