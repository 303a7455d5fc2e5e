// Runs the command line: in a process of its own, as users do, or in a thread that has loaded its modules once. A
// process takes half a second to load them, longer than most commands run.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { MessageChannel, receiveMessageOnPort, Worker } from 'node:worker_threads'

export const MAIN: string = fileURLToPath(new URL('./main.js', import.meta.url))

export interface Ended {
  readonly status: number | null
  readonly stdout: string
  readonly stderr: string
}

/** What the thread runs. */
export interface Command {
  readonly args: readonly string[]
  readonly env: NodeJS.ProcessEnv
}

const PLAIN_ENVIRONMENT = { PATH: process.env['PATH'], CUDA_MEMPOOL_DEVICE: 'simulated' }

/** Runs a command in a process of its own. */
export function runProcess(args: readonly string[], env: NodeJS.ProcessEnv = {}, input?: Buffer): Ended {
  const { status, stdout, stderr } = spawnSync(process.execPath, [MAIN, ...args], {
    encoding: 'utf8',
    env: { ...PLAIN_ENVIRONMENT, ...env },
    maxBuffer: 2 ** 26,
    ...(input && { input }),
  })
  return { status, stdout, stderr }
}

const { port1: port, port2: threadPort } = new MessageChannel()
/** Counts the commands that ended. */
const ended = new Int32Array(new SharedArrayBuffer(4))
let started = false

/** Runs a command in the thread. It has no standard input. */
export function run(args: readonly string[], env: NodeJS.ProcessEnv = {}): Ended {
  if (!started) startThread()
  started = true
  const before = ended[0]
  port.postMessage({ args, env: { ...PLAIN_ENVIRONMENT, ...env } } satisfies Command)
  Atomics.wait(ended, 0, before)
  return receiveMessageOnPort(port)!.message as Ended
}

/** The stdout of a command that succeeds with an empty stderr. */
export function printed(args: readonly string[], env: NodeJS.ProcessEnv = {}): string {
  const { stdout, stderr, status } = run(args, env)
  assert.deepEqual([status, stderr], [0, ''], args.join(' '))
  return stdout
}

/** The line on stderr of a refused command. */
export function refused(args: readonly string[], env: NodeJS.ProcessEnv = {}): string {
  const { stdout, stderr, status } = run(args, env)
  assert.deepEqual([status, stdout], [2, ''], `${args.join(' ')}: ${stderr}`)
  assert.match(stderr, /^cuda-mempool: \P{Cc}+\n$/u)
  return stderr
}

function startThread(): void {
  const worker = new Worker(new URL('./command-line.worker.js', import.meta.url), {
    workerData: { port: threadPort, ended },
    transferList: [threadPort],
  })
  worker.unref()
  port.unref()
}
