// The built program, always on the simulated device: most commands in a thread, and each kind of output also in a
// process of its own.

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { formatBytes } from '../core/base/bytes.js'
import { writePickle } from '../recordings/trace/pytorch/pickle-writer.js'
import { DEFAULT_POLICIES } from '../recordings/trace/replay-result.js'
import { MAIN, printed, refused, run, runProcess } from './command-line.fixture.js'

const RECORDING = fileURLToPath(new URL('../../../traces/mlp-train-stacks.pickle.gz', import.meta.url))
const folder = mkdtempSync(join(tmpdir(), 'cuda-mempool-cli-'))
after(() => rmSync(folder, { recursive: true }))

function file(name: string, content: string | Uint8Array): string {
  const path = join(folder, name)
  writeFileSync(path, content)
  return path
}

test('a process prints, refuses and fails as the thread does', () => {
  const commands = [['--help'], ['info'], ['demo'], ['inof'], ['replay', RECORDING], ['replay', 'no-such-file']]
  for (const command of [...commands, ['replay', RECORDING, '--policy', 'recorded', '--capacity', '100MiB']]) {
    assert.deepEqual(runProcess(command), run(command), command.join(' '))
  }
  const ascii = { LC_ALL: 'C' }
  assert.deepEqual(runProcess(['info'], ascii), run(['info'], ascii))
})

describe('help and version', () => {
  test('--help works for the program and for every command', () => {
    assert.match(printed(['--help']), /info.*demo.*replay.*Exit status:.* 0 .* 1 .* 2 .* 3 /s)
    assert.equal(printed(['-h']), printed(['--help']))
    assert.match(printed(['replay', '--help']), /finally:\n +torch\.cuda\.memory\._dump_snapshot.*Exit status:/s)
    assert.equal(printed(['replay', '-h']), printed(['replay', '--help']))
    assert.match(printed(['info', '--help']), /--device.*--json/s)
    assert.match(printed(['demo', '--help']), /--device/)
    const help = printed(['replay', '--help'])
    for (const option of ['device', 'policy', 'capacity', 'lag', 'repeat', 'gpu', 'timing', 'verify', 'json']) {
      assert.ok(help.includes(`--${option} `), option)
    }
  })

  test('without a command the help is printed, with the commands by reader', () => {
    const help = printed([])
    assert.equal(help, printed(['--help']))
    assert.equal(help, printed(['help']))
    assert.equal(help, printed(['--quiet']))
    assert.match(help, /^Usage: .*\n\nYou have a PyTorch recording or error message:\n {2}why .* check /s)
    assert.match(help, /\n\nYou write GPU programs in Node:\n {2}info .* demo .* top .*\n\nBoth:\n {2}report .* help /s)
    assert.equal(printed(['help', 'why']), printed(['why', '--help']))
  })

  test('--no-color ends colours, before and behind the command', () => {
    const coloured = (...args: string[]) => printed(args, { FORCE_COLOR: '1' }).includes('\x1b[')
    assert.ok(coloured('why', RECORDING))
    assert.ok(!coloured('why', RECORDING, '--no-color') && !coloured('--no-color', 'why', RECORDING))
  })

  test('NO_COLOR ends colours that FORCE_COLOR begins', () => {
    assert.ok(printed(['why', RECORDING], { FORCE_COLOR: '1' }).includes('\x1b['))
    assert.ok(!printed(['why', RECORDING], { FORCE_COLOR: '1', NO_COLOR: '1' }).includes('\x1b['))
  })

  test('--quiet leaves errors and JSON only, before and behind the command', () => {
    const page = join(folder, 'quiet.html')
    const again = ['--against', RECORDING, '--max-growth', '0%']
    const commands = [
      ['why', RECORDING],
      ['tune', RECORDING],
      ['diff', RECORDING, RECORDING],
      ['check', RECORDING, ...again],
      ['replay', RECORDING, '--fail-if', 'failures==0'],
      ['report', RECORDING, '-o', page],
      ['convert', RECORDING, '-o', join(folder, 'quiet.csv')],
      ['viewer', '-o', page, '--force'],
      ['demo'],
      ['info'],
    ]
    for (const command of commands) {
      const status = command[0] === 'replay' ? 4 : 0
      assert.deepEqual(run([...command, '--quiet']), { status, stdout: '', stderr: '' }, command[0])
    }
    assert.equal(printed(['-q', 'why', RECORDING]), '')
    assert.equal(printed(['why', RECORDING, '--json', '-q']), printed(['why', RECORDING, '--json']))
    assert.ok(printed(['why', RECORDING]).length > 0, 'the next command prints again')
    assert.match(refused(['why', 'no-such-file', '--quiet']), /no-such-file: no such file/)
  })

  test('why and diff print the same as JSON', () => {
    const why = JSON.parse(printed(['why', RECORDING, '--json']))
    assert.deepEqual([why.verdict, why.failed, why.tuned, why.gaps.hasStacks], [null, null, null, true])
    assert.ok(why.holders[0].bytes > 0 && why.trace.events > 0)
    const { before, after, stacks, peakBytes } = JSON.parse(printed(['diff', RECORDING, RECORDING, '--json']))
    assert.deepEqual([after, stacks.length > 0], [before, true])
    assert.deepEqual(peakBytes, [before.peakRequestedBytes, before.peakRequestedBytes])
  })

  test("--version, -v, -V and the word version print the package's version", () => {
    const { version } = JSON.parse(readFileSync(new URL('../../../package.json', import.meta.url), 'utf8'))
    for (const word of ['--version', '-v', '-V', 'version']) assert.equal(printed([word]), `${version}\n`, word)
  })
})

describe('a wrong command line is refused in one line', () => {
  const wrong: [string, string[], RegExp, NodeJS.ProcessEnv?][] = [
    ['an unknown command', ['inof'], /unknown command 'inof'.*info/],
    ['help of an unknown command', ['help', 'inof'], /unknown command 'inof'.*info/],
    ['an unknown option', ['demo', '--fast'], /unknown option '--fast'; see cuda-mempool demo --help$/m],
    ['no file', ['replay'], /missing required argument 'file'; see cuda-mempool replay --help$/m],
    ['an argument too many', ['demo', 'now'], /too many arguments/],
    ['a bad device', ['info', '--device', 'cpu'], /--device: 'cpu' is no device; write auto, simulated or a number/],
    ['a bad CUDA_MEMPOOL_DEVICE', ['demo'], /CUDA_MEMPOOL_DEVICE: 'cpu' is no device/, { CUDA_MEMPOOL_DEVICE: 'cpu' }],
    ['a bad policy', ['replay', RECORDING, '--policy', 'pytorch,best'], /there is no 'best'; there are recorded, /],
    ['a bad capacity', ['replay', RECORDING, '--capacity', 'much'], /--capacity: 'much' is not a size; write .*GiB/],
    ['a capacity of part of a byte', ['replay', RECORDING, '--capacity', '3.9'], /--capacity: '3.9' is not a size/],
    ['a capacity of 0', ['replay', RECORDING, '--capacity', '0'], /--capacity: '0' is below 2MiB/],
    ['a bad lag', ['replay', RECORDING, '--lag', 'soon'], /--lag: 'soon' .*or 'never'/],
    ['a bad --gpu', ['replay', RECORDING, '--gpu', 'one'], /--gpu: 'one' is no whole number from 0/],
    ['standard input twice', ['replay', '-', '-'], /-: standard input has one recording/],
    ['a repeat of 0', ['replay', RECORDING, '--repeat', '0'], /--repeat: '0' is no whole number from 1/],
  ]
  for (const [name, args, line, env] of wrong) test(name, () => assert.match(refused(args, env), line))
})

test('an empty file name is refused in one line that names the argument', () => {
  const empty: [string[], RegExp][] = [
    [['replay', ''], /'' is invalid for argument 'file'/],
    [['report', ''], /'' is invalid for argument 'file'/],
    [['why', ''], /'' is invalid for argument 'file'/],
    [['tune', ''], /'' is invalid for argument 'file'/],
    [['convert', '', '-o', '-'], /'' is invalid for argument 'file'/],
    [['replay', RECORDING, ''], /'' is invalid for argument 'file'/],
    [['diff', '', RECORDING], /'' is invalid for argument 'before'/],
    [['diff', RECORDING, ''], /'' is invalid for argument 'after'/],
    [['check', '', '--against', RECORDING], /'' is invalid for argument 'file'/],
    [['check', RECORDING, '--against', ''], /option '--against <base>' argument '' is invalid/],
    [['top', ''], /'' is invalid for argument 'process'/],
    [['convert', RECORDING, '-o', ''], /option '-o, --output <file>' argument '' is invalid/],
    [['report', RECORDING, '-o', ''], /option '-o, --output <page>' argument '' is invalid/],
    [['viewer', '-o', ''], /option '-o, --output <page>' argument '' is invalid/],
    [['diff', RECORDING, RECORDING, '-o', ''], /option '-o, --output <page>' argument '' is invalid/],
  ]
  for (const [args, line] of empty) {
    const said = refused(args)
    assert.match(said, line)
    assert.match(said, /\. The file name is empty; see cuda-mempool \w+ --help$/m)
  }
})

describe('a file that cannot be read is refused in one line that names it', () => {
  const packed = readFileSync(RECORDING)
  const system = Buffer.from('\x80\x02cposix\nsystem\nX\x02\x00\x00\x00idq\x00\x85R.', 'latin1')
  const bad: [string, () => string, RegExp][] = [
    ['missing', () => join(folder, 'nothing.pickle'), /nothing\.pickle: no such file/],
    ['empty', () => file('empty.pickle', ''), /empty\.pickle: the file is empty/],
    ['a folder', () => folder, /is a directory/],
    ['truncated', () => file('half.pickle.gz', packed.subarray(0, packed.length / 2)), /half\.pickle\.gz: .*truncated/],
    ['foreign', () => file('notes.txt', 'Dear diary,\n'), /notes\.txt: is no recording: /],
    ['hostile', () => file('hostile.pickle', system), /hostile\.pickle: .*posix/],
    ['named with an escape', () => join(folder, 'a\x1b[2J\nb'), /no such file/],
  ]
  for (const [name, path, line] of bad) test(name, () => assert.match(refused(['replay', path()]), line))

  test('a bad file after a good one is refused before any output', () => {
    refused(['replay', RECORDING, join(folder, 'nothing.pickle')])
  })
})

test("demo names the device and prints the kernel's result", () => {
  assert.match(printed(['demo']), /^Device: simulated GPU.*\n.*0, 0\.5, 1, 1\.5.*\n.*1001 allocations/)
})

test('info names the device, as text and as JSON', () => {
  assert.match(printed(['info']), /simulated GPU.*virtual memory +CUDA 11\.0 +yes/s)
  const report = JSON.parse(printed(['info', '--json']))
  assert.deepEqual([report.device.simulated, report.noGpu, report.driver.version], [true, null, '13.0'])
})

describe('replay under settings of PyTorch', () => {
  const replayed = (...policies: string[]) =>
    printed(['replay', RECORDING, '--json', '--capacity', '1GiB', '--policy', policies.join()])

  test('replays each setting, and one with commas is one', () => {
    const policies = ['pytorch:max_split_size_mb:64,expandable_segments:True', 'pytorch:', 'pytorch']
    const { runs } = JSON.parse(replayed(...policies)) as { runs: { policy: string; peakReservedBytes: number }[] }
    assert.deepEqual(
      runs.map(({ policy }) => policy),
      policies,
    )
    assert.equal(runs[1].peakReservedBytes, runs[2].peakReservedBytes)
    assert.notEqual(runs[0].peakReservedBytes, runs[1].peakReservedBytes)
  })

  test('refuses settings that PyTorch refuses', () => {
    assert.match(
      refused(['replay', RECORDING, '--policy', 'pytorch:max_split_size_mb:1']),
      /: --policy: max_split_size_mb must/,
    )
    assert.match(
      refused(['replay', RECORDING, '--policy', 'pytorch:nonsense:1']),
      /: --policy: PyTorch has no setting 'nonsense'/,
    )
  })
})

describe('why and diff', () => {
  test('print what a recording tells without a replay, in the letters of the locale', () => {
    const shown = printed(['why', RECORDING])
    assert.match(shown, /No request failed\..*Most in use: 187\.12 MiB.*Next: npx cuda-mempool tune /s)
    assert.match(printed(['why', RECORDING], { LC_ALL: 'C' }), /^[\x20-\x7e\n]+$/)
    assert.match(printed(['why', RECORDING, '--step', 'zero_grad']), /zero_grad/)
    assert.match(
      printed(['why', RECORDING, '--device-memory', '1GiB']),
      /Of 1 GiB, 826 MiB are left beside the 198 MiB/,
    )
    assert.match(printed(['diff', RECORDING, RECORDING]), /no change/)
    const page = join(folder, 'diff.html')
    assert.match(printed(['diff', RECORDING, RECORDING, '-o', page]), /wrote .*diff\.html/)
    assert.match(readFileSync(page, 'utf8'), /"difference":\{"names":/)
    assert.match(refused(['diff', RECORDING, RECORDING, '-o', 'x.txt']), /--output: 'x\.txt' does not end in \.html/)
  })

  test('name the same figures as a replay', () => {
    const { trace } = JSON.parse(printed(['replay', RECORDING, '--json', '--policy', 'recorded']))
    const shown = printed(['why', RECORDING])
    assert.ok(shown.includes(`Most in use: ${formatBytes(trace.peakRequestedBytes)} `))
    assert.ok(printed(['diff', RECORDING, RECORDING]).includes(`${formatBytes(trace.recordedPeakReservedBytes)} in A`))
  })

  test('refuse a wrong pattern or size, and a second file that is missing', () => {
    assert.match(refused(['why', RECORDING, '--step', '(']), /--step: Invalid regular expression/)
    assert.match(refused(['why', RECORDING, '--device-memory', '24GiBs']), /^cuda-mempool: --device-memory: /m)
    assert.match(refused(['why', RECORDING, '--device-memory', '0']), /--device-memory: '0' is below 2MiB/)
    assert.match(refused(['diff', RECORDING]), /missing required argument 'after'; see cuda-mempool diff --help/)
    assert.match(refused(['diff', RECORDING, join(folder, 'nothing.pickle')]), /nothing\.pickle: no such file/)
  })
})

describe('a command that writes a file', () => {
  const commands = [
    ['convert', RECORDING],
    ['report', RECORDING, '--policy', 'recorded'],
    ['diff', RECORDING, RECORDING],
    ['viewer'],
  ]
  for (const command of commands) {
    const [name] = command
    const ending = name === 'convert' ? 'csv' : 'html'
    const to = (path: string, ...more: string[]) => [...command, '-o', join(folder, path), ...more]

    test(`${name} replaces one only with --force`, () => {
      const path = file(`there-${name}.${ending}`, 'mine')
      assert.match(refused([...command, '-o', path]), /exists; --force replaces it, -o names another file/)
      assert.equal(readFileSync(path, 'utf8'), 'mine')
      printed([...command, '-o', path, '--force'])
      assert.notEqual(readFileSync(path, 'utf8'), 'mine')
    })

    test(`${name} refuses places where it cannot write`, () => {
      assert.match(refused(to(`no/x.${ending}`)), /no: there is no such folder/)
      mkdirSync(join(folder, `folder-${name}.${ending}`))
      assert.match(refused(to(`folder-${name}.${ending}`)), /is a folder; name a file with -o/)
      if (process.getuid?.() === 0) return // may write everywhere
      const locked = join(folder, `locked-${name}`)
      mkdirSync(locked)
      chmodSync(locked, 0o500)
      assert.match(refused(to(`locked-${name}/x.${ending}`)), /no permission to write; name another file with -o/)
    })
  }
})

describe('replay', () => {
  test('--json prints one object with the whole report', () => {
    const report = JSON.parse(printed(['replay', RECORDING, '--json']))
    assert.deepEqual(Object.keys(report), [
      'schemaVersion',
      'kind',
      'trace',
      'device',
      'lag',
      'capacityBytes',
      'repeat',
      'runs',
    ])
    assert.deepEqual([report.trace.file, report.trace.events, report.lag], [RECORDING, 794, 8])
    assert.deepEqual(report.device, { name: 'simulated GPU', simulated: true })
    assert.deepEqual(
      report.runs.map((run: { policy: string }) => run.policy),
      DEFAULT_POLICIES,
    )
    const keys = Object.keys(report.runs[0])
    assert.ok(keys.length >= 18)
    for (const run of report.runs) assert.deepEqual(Object.keys(run).sort(), keys.toSorted(), run.policy)
  })

  test('calls are timed only with --timing', () => {
    const options = ['replay', RECORDING, '--policy', 'cuda-mempool']
    assert.doesNotMatch(printed(options), /a second|median/)
    assert.match(printed([...options, '--timing']), /a second.*median/s)
    printed([...options, '--no-latency']) // as scripts of before may have it
  })

  test('the text is a table that names the device', () => {
    const shown = printed(['replay', RECORDING])
    assert.ok(shown.endsWith(`\nNext: npx cuda-mempool report ${RECORDING}\n`))
    assert.match(shown, /simulated GPU, no GPU was used/)
    assert.match(shown, /^PyTorch as recorded +– +198 MiB/m)
    assert.match(shown, /^PyTorch, default +190 MiB +198 MiB/m)
    assert.match(shown, /261 of 261 allocations/)
  })

  test('streams wait before much is idle, and a pool that makes them wait at once needs no more memory', () => {
    // With a capacity, here all of the device, no least capacity is searched.
    const options = ['--json', '--lag', 'never', '--policy', 'cuda-mempool,waiting', '--capacity', '140GiB']
    const { runs } = JSON.parse(printed(['replay', 'traces/multistream-random.pickle.gz', ...options]))
    const [byDefault, waiting] = runs
    assert.ok(
      byDefault.overhead <= 1.4 && waiting.overhead <= byDefault.overhead,
      `${byDefault.overhead}, ${waiting.overhead}`,
    )
    assert.ok(byDefault.insertedWaits > 0 && waiting.insertedWaits > 0)
  })

  test('- is what is piped in', () => {
    const options = ['--policy', 'recorded', '--device', 'simulated']
    for (const command of [
      ['replay', '-', ...options],
      ['why', '-'],
    ]) {
      const { stdout, status } = runProcess(command, {}, readFileSync(RECORDING))
      assert.equal(status, 0)
      assert.match(stdout, /^standard input\n794 events/)
      assert.doesNotMatch(stdout, /\nNext: /, 'it cannot be read again')
    }
  })

  test('of several GPUs in a file the others are named, and --gpu chooses', () => {
    const event = { action: 'alloc', addr: 4096, size: 512, stream: 0, time_us: 0 }
    const path = file(
      'two.pickle',
      writePickle({ segments: [], device_traces: [[event], [event, { ...event, addr: 8192 }]] }),
    )
    assert.match(printed(['replay', path]), /These are the events of GPU 1; GPU 0 has 1\. --gpu N chooses\./)
    assert.match(printed(['replay', path, '--gpu', '0']), /These are the events of GPU 0; GPU 1 has 2\./)
    const report = JSON.parse(printed(['replay', path, '--gpu', '0', '--json', '--policy', 'cuda-mempool']))
    assert.deepEqual([report.trace.events, report.runs[0].leastCapacityBytes], [1, 2 * 2 ** 20])
  })

  test('a GPU that the file does not have is refused with those that it has', () => {
    assert.match(refused(['replay', RECORDING, '--gpu', '3']), /holds no events of device 3; it has some of device 0/)
  })

  test('options apply, and each of several files gets one line', () => {
    const options = ['--policy', 'cuda-mempool, recorded', '--lag', 'never', '--capacity', '0.9GiB', '--repeat', '2']
    const lines = printed(['replay', RECORDING, RECORDING, '--json', '--verify', ...options]).split('\n')
    assert.deepEqual([lines.length, lines[2]], [3, ''])
    const { lag, runs } = JSON.parse(lines[1])
    assert.equal(lag, 'never')
    assert.deepEqual(
      runs.map((run: { policy: string }) => run.policy),
      ['cuda-mempool', 'recorded'],
    )
    assert.equal(runs[0].allocateNs, null)
    assert.equal(runs[0].leastCapacityBytes, null, 'not searched with a capacity')
    assert.equal(runs[0].verified.damaged, 0)
    assert.ok(runs[0].verified.blocks > 0)
  })

  test('the status is 1 when cuda-mempool could not serve the recording, and the output names the event', () => {
    const options = ['--capacity', '188MiB']
    const { status, stdout, stderr } = run(['replay', RECORDING, ...options])
    assert.deepEqual([status, stderr], [1, ''])
    assert.match(stdout, /✗ cuda-mempool failed \d+ requests?\. The first: /)
    assert.equal(run(['replay', RECORDING, ...options, '--policy', 'driver-malloc']).status, 0)
    const impossible = run(['replay', RECORDING, '--capacity', '100MiB'])
    assert.equal(impossible.status, 1)
    assert.match(impossible.stdout, /\n✗ No allocator can do this in 100 MiB: 187\.12 MiB are needed\.\n\nNext: /)
  })
})

test('colour is for terminals, or for FORCE_COLOR', () => {
  const replay = ['replay', RECORDING, '--policy', 'recorded']
  assert.ok(!printed(replay).includes('\x1b'))
  assert.ok(printed(replay, { FORCE_COLOR: '1' }).includes('\x1b'))
  assert.ok(!printed(replay, { FORCE_COLOR: '1', NO_COLOR: '1' }).includes('\x1b'))
})

test('every text is ASCII in a locale that has no more', () => {
  const impossible = run(['replay', RECORDING, '--capacity', '100MiB'], { LC_ALL: 'C' })
  const texts = [
    printed(['replay', RECORDING, '--timing'], { LC_ALL: 'C' }),
    printed(['info'], { LC_ALL: 'C' }),
    printed(['demo'], { LC_ALL: 'C' }),
    printed(['replay', '--help'], { LC_ALL: 'C' }),
    refused(['replay', 'no-such-file'], { LC_ALL: 'C' }),
    impossible.stdout,
  ]
  for (const text of texts) assert.match(text, /^[\n -~]+$/)
})

test('a reader may stop early without an error, and the exit status is as if it read all', async () => {
  const recording = 'traces/mlp-train-stacks.pickle.gz'
  for (const [args, status, says] of [
    [['info'], 0, /^$/],
    [
      ['replay', recording, '--policy', 'cuda-mempool', '--fail-if', 'overhead>1'],
      4,
      /^cuda-mempool: .*'overhead>1' holds.*\n$/,
    ],
    [['replay', recording, '--capacity', '100MiB'], 1, /^$/],
    [['convert', recording, '-o', '-', '--to', 'svg'], 0, /^$/],
    [['convert', recording, '-o', '-', '--to', 'json', '--fail-if', 'overhead>1'], 4, /holds/],
  ] as const) {
    const child = spawn(process.execPath, [MAIN, ...args], {
      env: { PATH: process.env['PATH'], CUDA_MEMPOOL_DEVICE: 'simulated' },
    })
    child.stdout.destroy()
    const stderr = child.stderr.setEncoding('utf8').toArray()
    const [ended] = await once(child, 'close')
    assert.equal(ended, status, args.join(' '))
    assert.match((await stderr).join(''), says)
  }
})
