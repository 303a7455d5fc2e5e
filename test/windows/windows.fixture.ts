// Programs on Node's Windows build under Wine. Their output goes to files, because pipes fail there.

import { spawnSync } from 'node:child_process'
import { closeSync, existsSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const NODE = process.env['CUDA_MEMPOOL_WINDOWS_NODE'] ?? ''

/** The reason to skip tests of Windows; false if they run. */
export const skipReason: string | false = !existsSync(NODE)
  ? 'CUDA_MEMPOOL_WINDOWS_NODE does not name a node.exe'
  : spawnSync('wine', ['--version']).status === 0
    ? false
    : 'there is no wine'

export interface Ended {
  readonly status: number | null
  readonly stdout: string
  readonly stderr: string
}

/** A Windows of its own, with an empty disk. */
export class Windows {
  private readonly disk = mkdtempSync(join(tmpdir(), 'cuda-mempool-wine-'))
  private readonly env = {
    PATH: process.env['PATH'],
    HOME: this.disk,
    LC_ALL: 'C.UTF-8', // the letters of arguments
    WINEPREFIX: join(this.disk, 'prefix'),
    WINEDEBUG: '-all',
    WINEDLLOVERRIDES: 'mscoree,mshtml=', // no .NET and no browser, which Wine would ask for
    NODE_SKIP_PLATFORM_CHECK: '1', // Wine calls itself an older Windows
  }

  constructor() {
    mkdirSync(this.env.WINEPREFIX)
    // The server stays until close. A service that crashes would otherwise write to the output of the command that
    // started the server again.
    spawnSync('wineserver', ['--persistent'], { env: this.env, stdio: 'ignore' })
    spawnSync('wine', ['wineboot', '--init'], { env: this.env, stdio: 'ignore' })
  }

  /** Runs Node in a folder. */
  node(words: readonly string[], folder: string): Ended {
    return this.run([NODE, ...words], folder)
  }

  /** Runs Node from a line of the Windows shell, such as `node program.js < file`. */
  shell(line: string, folder: string): Ended {
    return this.run(['cmd', '/c', line.replace(/^node /, `${windowsPath(NODE)} `)], folder)
  }

  private run(words: readonly string[], folder: string): Ended {
    const [stdout, stderr] = ['stdout', 'stderr'].map(name => join(this.disk, name))
    const files = [stdout, stderr].map(path => openSync(path, 'w'))
    const { status } = spawnSync('wine', words, { cwd: folder, env: this.env, stdio: ['ignore', ...files] })
    for (const file of files) closeSync(file)
    return { status, stdout: readFileSync(stdout, 'utf8'), stderr: readFileSync(stderr, 'utf8') }
  }

  /** Ends its processes, and removes its disk. */
  close(): void {
    spawnSync('wineserver', ['--kill'], { env: this.env })
    spawnSync('wineserver', ['--wait'], { env: this.env })
    rmSync(this.disk, { recursive: true })
  }
}

/** The path of a file of this machine as Windows sees it. */
export function windowsPath(path: string): string {
  return `Z:${path.replaceAll('/', '\\')}`
}
