#!/usr/bin/env node
// The file that the command `cuda-mempool` runs. It imports nothing itself, so that the bundle can load files in turn.

await import('./program.js')
