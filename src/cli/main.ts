#!/usr/bin/env node
// The command line: what can be said. Each command's work is imported when it is asked for, so that help comes at once.

import { readFileSync } from 'node:fs'
import { Command } from 'commander'
import { POLICIES } from '../trace/replay-result.js'
import { explain, UsageError } from './exit.js'
import type { InfoOptions } from './info.js'
import type { ReplayArguments } from './replay.js'

const PACKAGE = new URL('../../../package.json', import.meta.url)
const { version } = JSON.parse(readFileSync(PACKAGE, 'utf8')) as { version: string }

const DEVICE = '--device <which>'
const DEVICE_HELP = "auto, simulated or a GPU's number; auto is GPU 0, or the simulated device where there is no GPU"

const program = new Command('cuda-mempool')
  .description('GPU memory pools: look at a device, try a pool, replay recorded allocations.')
  .version(version, '--version', 'print the version')
  .helpOption('--help', 'show this')
  .exitOverride()
  .configureOutput({ writeErr: () => {} }) // explain() says it in one line
  .addHelpText(
    'after',
    `
CUDA_MEMPOOL_DEVICE names the device where no --device is given.
Exit status: 0 done; 1 cuda-mempool could not serve what the recording served;
2 wrong usage, an unreadable file, no device, or a device that refuses.`,
  )

program
  .command('info')
  .description('the driver, the devices, and what works on them, found by trying')
  .option(DEVICE, DEVICE_HELP)
  .option('--json', 'print one object')
  .action(async (options: InfoOptions) => (await import('./info.js')).info(options, version))

program
  .command('demo')
  .description('a pool, a kernel and copies at work, in a program of 30 lines')
  .option(DEVICE, DEVICE_HELP)
  .action(async (options: { device?: string }) => {
    const [{ demo }, { chosenDevice }] = await Promise.all([import('./demo.js'), import('./device-option.js')])
    const lines: string[] = []
    await demo(chosenDevice(options.device), line => lines.push(line))
    process.stdout.write(`${lines.join('\n')}\n`)
  })

program
  .command('replay')
  .description('what a recorded run would have needed under several allocators')
  .argument('<file...>', 'PyTorch memory snapshots: pickle or JSON, gzip or not')
  .option(DEVICE, DEVICE_HELP)
  .option('--policy <names>', `some of ${POLICIES.join(', ')}, with commas between; default all but waiting`)
  .option('--capacity <size>', 'what each may reserve, like 2GiB; default no limit')
  .option('--lag <events>', "after how many events of its stream work completes, or 'never'; default 8; not on a GPU")
  .option('--repeat <times>', 'go through the recording so many times')
  .option('--no-latency', 'skip the passes that time each call')
  .option('--verify', 'stamp every block and compare before its free')
  .option('--json', 'print one object for each file, on a line of its own')
  .action(async (files: string[], options: ReplayArguments) => {
    process.exitCode = await (await import('./replay.js')).replayFiles(files, options)
  })

// A reader that has seen enough (| head) is no mistake.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  process.exit(
    error.code === 'EPIPE' ? undefined : explain(new UsageError(`cannot write the result: ${error.message}`)),
  )
})

try {
  await program.parseAsync()
} catch (error) {
  process.exitCode = explain(error)
}
