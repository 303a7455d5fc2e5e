#!/usr/bin/env node
// The file that the command `cuda-mempool` runs. A keeper runs for weeks beside other programs, so it loads none of the
// other commands.

import { keeperOptionsOf } from './keep/keeper-options.js'

const options = keeperOptionsOf(process.argv.slice(2))
if (options === null) await import('./program.js')
else process.exitCode = await (await import('./keep/run-keeper.js')).runKeeper(options)
