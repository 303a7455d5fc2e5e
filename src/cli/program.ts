// The command line: commands and options. The module of a command is imported when it runs, so that help is fast.

import { Argument, Command, CommanderError, Option } from 'commander'
import { packageVersion } from '../core/base/package-files.js'
import { RECIPE } from '../recordings/report/recording-recipe.js'
import { POLICIES } from '../recordings/trace/replay-result.js'
import type { CheckArguments } from './check.js'
import { completionScript, SHELLS, type Shell } from './completion.js'
import type { ConvertArguments } from './convert.js'
import { explain, UsageError } from './exit.js'
import { fileName, fileNames } from './file-arguments.js'
import type { InfoOptions } from './info/info.js'
import type { DropOptions, KeepOptions, PruneOptions } from './keep/keep.js'
import { KEEPER_OPTIONS, keeperOptions } from './keep/keeper-options.js'
import type { DiffArguments } from './pages/diff.js'
import type { ReportArguments } from './pages/report.js'
import type { ViewerArguments } from './pages/viewer.js'
import type { PredictArguments } from './predict.js'
import type { ReplayArguments } from './replay.js'
import { setQuiet } from './terminal.js'
import type { TopOptions } from './top/top.js'
import type { TuneArguments } from './tune.js'
import type { WhyArguments } from './why.js'

const version = packageVersion()

const DEVICE = '--device <which>'
const DEVICE_HELP = "auto, simulated or a GPU's number; auto is GPU 0, or the simulated device without a GPU"

const FILE_HELP =
  'PyTorch snapshots (pickle, JSON), torch.profiler traces, RMM or Nsight Systems exports; - is standard input'
const EXPLAINED_HELP = `a log with PyTorch's error message, a printed memory_summary(), or a recording: ${FILE_HELP}`
const GPU_HELP =
  'the recorded GPU, if a file has several; default the one that ran out of memory first, or if none did the one with the most events'
const POLICY_HELP =
  `some of ${POLICIES.join(', ')}, separated by commas; default all but waiting. ` +
  'pytorch:SETTINGS is PyTorch with settings, like pytorch:max_split_size_mb:128'
const LARGE_HELP = 'Above 500,000 events driver-malloc, driver-pool and power-of-two only if they are named'
const FAIL_IF_HELP = 'exit with status 4 if it holds, like overhead>1.2 or pytorch.peakReservedBytes>3.9GiB'

const BOTH = 'Both:'
const STATUSES = `
Exit status:
  0  done
  1  replay: cuda-mempool could not serve the recording, or lost contents
  2  wrong usage, an unreadable file, no device, or a device that refuses
  3  a defect of this program
  4  a condition of --fail-if holds, or check finds growth`
const COMPLETION_HELP = `
  bash  eval "$(cuda-mempool completion bash)"          in ~/.bashrc
  zsh   eval "$(cuda-mempool completion zsh)"           in ~/.zshrc, after compinit
  fish  cuda-mempool completion fish | source           in ~/.config/fish/config.fish`
const RECORDING_HELP = `\n${RECIPE}\n${STATUSES}`

const program: Command = new Command('cuda-mempool')
  .description('Tells where the memory of a GPU went, and what helps: of PyTorch programs, and of pools in Node.')
  .version(version, '-v, --version', 'print the version')
  .helpOption('-h, --help', 'show this')
  .addHelpCommand(
    new Command('help')
      .argument('[command]')
      .description('show the help of a command')
      .helpOption(false)
      .helpGroup(BOTH),
  )
  .option('--no-color', 'print without colours, as with NO_COLOR=1')
  .on('option:no-color', () => {
    process.env['NO_COLOR'] = '1'
  })
  .option('-q, --quiet', 'print errors, and what --json asks for, but no text')
  .hook('preAction', () => setQuiet(program.opts()['quiet'] === true))
  .exitOverride()
  .configureOutput({ writeErr: () => {} }) // explain() prints errors in one line
  .addHelpText(
    'after',
    `
CUDA_MEMPOOL_DEVICE names the device if --device is not given.
${STATUSES}`,
  )

program
  .commandsGroup('You have a PyTorch recording or error message:')
  .command('why')
  .description(
    'tell why a run ran out of memory, or needed so much, by a recording or by the error message: ' +
      'who holds it, what leaks, what private pools hold',
  )
  .argument('<file>', EXPLAINED_HELP, fileName)
  .allowExcessArguments()
  .option('--gpu <number>', GPU_HELP)
  .option('--step <pattern>', 'steps end with the annotations of this regular expression; default the optimizer steps')
  .option('--device-memory <size>', 'the memory of the GPU, like 24GiB: what lies outside of the recording')
  .option('--json', 'print one JSON object')
  .addHelpText('after', RECORDING_HELP)
  .action(async (file: string, options: WhyArguments, { args }: Command) => {
    if (args.length > 1)
      throw new UsageError(
        `why: takes one file, not ${args.length}; tune finds the worst of several, and report shows them`,
      )
    await (await import('./why.js')).why(file, options)
  })

program
  .command('tune')
  .description(
    "say how much settings of PyTorch's allocator and checkpointing can save, and which of several runs needs most",
  )
  .argument(
    '<file...>',
    'PyTorch memory snapshots, as for replay; of several, such as one of each rank, the worst is named',
    fileNames,
  )
  .option('--gpu <number>', GPU_HELP)
  .option('--capacity <size>', 'the memory that the program may reserve, like 24GiB: whether it fits, and what helps')
  .option(
    '--setting <text>',
    'try this setting, like max_split_size_mb:128, not the usual ones; may be repeated',
    collected,
  )
  .option('--merge <line>', 'keep the other settings of this line, as of "$PYTORCH_CUDA_ALLOC_CONF"')
  .option('--seconds <number>', 'try no further setting after this time')
  .option('--json', 'print one JSON object')
  .addHelpText('after', RECORDING_HELP)
  .action(async (files: string[], options: TuneArguments) => {
    process.exitCode = await (await import('./tune.js')).tuneFiles(files, options)
  })

program
  .command('predict')
  .description('predict the memory of a run with another batch size, from recordings with two batch sizes')
  .argument(
    '<file...>',
    'two PyTorch memory snapshots of one program; a third of the predicted size is a check',
    fileNames,
  )
  .requiredOption('--batch <sizes>', 'the sizes of the two, like 4,8: batches, lengths, or whatever varies')
  .requiredOption('--for <size>', 'the size to predict')
  .option('--capacity <size>', 'the memory that the program may reserve, like 24GiB: whether it fits')
  .option('--gpu <number>', GPU_HELP)
  .option('--json', 'print one JSON object')
  .addHelpText('after', RECIPE)
  .action(async (files: string[], options: PredictArguments) => {
    process.exitCode = await (await import('./predict.js')).predictFiles(files, options)
  })

program
  .command('diff')
  .description('tell what grew and shrank between two recorded runs, by call stack')
  .argument('<before>', FILE_HELP, fileName)
  .argument('<after>', 'another', fileName)
  .option('--gpu <number>', GPU_HELP)
  .option('-o, --output <page>', 'also write a page of both recordings and their difference, as .html', fileName)
  .option('--force', 'replace an existing page')
  .option('--json', 'print one JSON object')
  .action(async (before: string, after: string, options: DiffArguments) =>
    (await import('./pages/diff.js')).diff(before, after, options),
  )

program
  .command('check')
  .description('fail if a recorded run needs more memory than its base, for continuous integration')
  .argument('<file>', FILE_HELP, fileName)
  .requiredOption('--against <base>', 'the recording to compare with', fileName)
  .option('--max-growth <limit>', 'a share of the base like 2%, or a size like 64MiB', '2%')
  .option('--gpu <number>', GPU_HELP)
  .option('--markdown <file>', 'also write a summary for GitHub or GitLab; - is standard output', fileName)
  .option('--junit <file>', 'also write JUnit XML, a test case for each figure; - is standard output', fileName)
  .option('--force', 'replace existing files')
  .option('--json', 'print one JSON object')
  .addHelpText('after', STATUSES)
  .action(async (file: string, options: CheckArguments) => {
    process.exitCode = await (await import('./check.js')).check(file, options)
  })

program
  .commandsGroup('You write GPU programs in Node:')
  .command('info')
  .description('show the driver, the devices, and which features work, each found by one use')
  .option(DEVICE, DEVICE_HELP)
  .option('--json', 'print one JSON object')
  .option('--check', 'only whether a GPU can be used: one line, and status 2 if not')
  .action(async (options: InfoOptions) => {
    process.exitCode = (await import('./info/info.js')).info(options, version)
  })

program
  .command('demo')
  .description('run a program of 30 lines with a pool, a kernel and copies')
  .option(DEVICE, DEVICE_HELP)
  .action(async (options: { device?: string }) => {
    const { demo } = await import('./demo.js')
    const { chosenDevice } = await import('./device-option.js')
    const { print } = await import('./terminal.js')
    const lines: string[] = []
    await demo(chosenDevice(options.device), line => lines.push(line))
    print(() => lines.join('\n'))
  })

program
  .command('top')
  .description('watch the pools of a running process, which serve(pool) or CUDA_MEMPOOL_SERVE=1 makes watchable')
  .addHelpText('after', '\nKeys: o orders the pools by name, in use, reserved or OOM; ? shows all keys.')
  .argument('[process]', 'process id, or path of its socket; default the only process that is served', fileName)
  .option('--once', 'print the figures once and end; the same without a terminal')
  .option('--json', 'print the figures once as one JSON object')
  .action(async (target: string | undefined, options: TopOptions) =>
    (await import('./top/top.js')).top(target, options),
  )

const SOCKET = '--socket <path>'
const SOCKET_HELP = "the keeper's socket; default in the folder of this user's sockets"

const keep = program
  .command('keep')
  .description('keep device memory when its process ends: run the keeper, or list and free what one keeps')
  .action(async (_: object, command: Command) => {
    const options = keeperOptions(command.optsWithGlobals())
    process.exitCode = await (await import('./keep/run-keeper.js')).runKeeper(options)
  })
for (const [name, { value, about }] of Object.entries(KEEPER_OPTIONS)) {
  keep.option(value === null ? `--${name}` : `--${name} <${value}>`, about)
}

keep
  .command('list')
  .description('show the kept regions, with their readers')
  .option(SOCKET, SOCKET_HELP)
  .option('--json', 'print one JSON object')
  .action(async (_: KeepOptions, command: Command) =>
    (await import('./keep/keep.js')).list(command.optsWithGlobals() satisfies KeepOptions),
  )

keep
  .command('prune')
  .description('free regions that no process reads; options together free what all of them name')
  .option('--unused <time>', 'those that were not attached for this time, like 30m, 1h or 2d')
  .option('--unfinished', 'forget the names whose writer ended early')
  .option('--name <name>', 'the region of this name')
  .option('--all', 'all of them')
  .option(SOCKET, SOCKET_HELP)
  .option('--json', 'print what was freed as one JSON object')
  .action(async (_: PruneOptions, command: Command) =>
    (await import('./keep/keep.js')).prune(command.optsWithGlobals() satisfies PruneOptions),
  )

keep
  .command('drop')
  .description('drop a region; its memory goes when its last reader closes it')
  .argument('<name>', 'the name of the region')
  .option('--force', "also end the lease of the process that fills it, and do not wait for readers' ends")
  .option(SOCKET, SOCKET_HELP)
  .action(async (name: string, _: DropOptions, command: Command) =>
    (await import('./keep/keep.js')).drop(name, command.optsWithGlobals() satisfies DropOptions),
  )

program
  .commandsGroup(BOTH)
  .command('report')
  .description('write a page that shows where the memory of recorded runs went; it needs no network')
  .argument('<file...>', 'recordings as for replay; several files, or GPUs of a file, are tabs of one page', fileNames)
  .option(
    '-o, --output <page>',
    'the page to write, or its pictures as .svg; default the name of the first file, with .html',
    fileName,
  )
  .option('--force', 'replace an existing page')
  .option('--gpu <number>', 'the recorded GPU, if a file has several; default all')
  .option('--policy <names>', `${POLICY_HELP}. ${LARGE_HELP}`)
  .option('--events <range>', 'only these events, like 1M..2M')
  .option('--last <events>', 'only the last events, like 500k')
  .option('--json', 'print what was written as one JSON object')
  .action(async (files: string[], options: ReportArguments) => {
    process.exitCode = await (await import('./pages/report.js')).reportFiles(files, options)
  })

program
  .command('viewer')
  .description('write an empty page that makes the report of recordings dropped on it; it needs no Node, no network')
  .option('-o, --output <page>', 'the page to write', fileName, 'viewer.html')
  .option('--force', 'replace an existing page')
  .option('--json', 'print what was written as one JSON object')
  .action(async (options: ViewerArguments) => (await import('./pages/viewer.js')).writeViewer(options))

program
  .command('replay')
  .description('compare the memory that a recorded run would need under several allocators')
  .argument('<file...>', FILE_HELP, fileNames)
  .option(DEVICE, DEVICE_HELP)
  .option('--gpu <number>', GPU_HELP)
  .option('--policy <names>', POLICY_HELP)
  .option('--capacity <size>', 'the most bytes that each policy may reserve, like 3.9GiB or 80GB; default no limit')
  .option('--lag <events>', "events of a stream after which its work completes, or 'never'; default 8; not on a GPU")
  .option('--repeat <times>', 'replay the recording this many times; default 1')
  .option('--timing', 'also time each call, in five more passes: events a second, medians, 99th percentiles')
  .addOption(new Option('--no-latency', 'the default now').hideHelp())
  .option('--verify', 'fill every block with a stamp, and compare it before the free')
  .option('--json', 'print one JSON object for each file, on a line of its own')
  .option('--fail-if <condition>', FAIL_IF_HELP, collected)
  .addHelpText('after', RECORDING_HELP)
  .action(async (files: string[], options: ReplayArguments) => {
    process.exitCode = await (await import('./replay.js')).replayFiles(files, options)
  })

program
  .command('convert')
  .description('write a recording in the format of another program')
  .argument('<file>', FILE_HELP, fileName)
  .requiredOption(
    '-o, --output <file>',
    'the result: .pickle (PyTorch), .pftrace (Perfetto), .pb.gz (pprof), .collapsed or .folded (flame graphs), ' +
      '.svg (the pictures of the report), .csv (a row for each allocation), .json (the figures of a replay); - is standard output',
    fileName,
  )
  .option('--to <format>', 'the format, whatever the ending: pickle, perfetto, pprof, collapsed, svg, csv, json')
  .option('--force', 'replace the result if it exists')
  .option('--gpu <number>', 'the recorded GPU; needed if the file has several')
  .option('--at <event>', 'the moment of pprof and collapsed: after this event; default the peak')
  .option('--fail-if <condition>', `for .json: ${FAIL_IF_HELP}`, collected)
  .option('--json', 'print what was written as one JSON object')
  .addHelpText('after', STATUSES)
  .action(async (file: string, options: ConvertArguments) => {
    process.exitCode = await (await import('./convert.js')).convertFile(file, options)
  })

program
  .command('completion')
  .description('print a script that completes commands and options in a shell')
  .addArgument(new Argument('<shell>', 'the shell').choices(SHELLS))
  .addHelpText('after', COMPLETION_HELP)
  .action((shell: Shell) => {
    process.stdout.write(`${completionScript(shell, program)}\n`)
  })

/** Collects an option that may be given several times. */
function collected(value: string, before: readonly string[] = []): string[] {
  return [...before, value]
}

// A reader such as head may stop early. The command goes on, for its exit status.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE') process.exit(explain(new UsageError(`cannot write the result: ${error.message}`)))
})

const words = process.argv.slice(2)
if (words[0] === '-V' || words[0] === 'version') words[0] = '--version'
const commands = program.commands.map(each => each.name())
// Commander takes the help of an unknown command for that of no command.
if (words[0] === 'help' && words.length > 1 && !commands.includes(words[1])) words.shift()

try {
  await program.parseAsync(words, { from: 'user' })
} catch (error) {
  // Without a command the help is the answer. The command `help` has printed it already.
  if (error instanceof CommanderError && error.code === 'commander.help' && error.exitCode !== 0) program.outputHelp()
  else
    process.exitCode = explain(
      error,
      commands.find(each => each === words[0]),
    )
}
