// The package as a user gets it: packed, and unpacked in a project away from all sources and development dependencies.
// Its own dependencies are linked from this checkout, so that no network is needed. What prepack does to dist is done
// to the unpacked files, since other tests run from dist meanwhile.

import { execFileSync } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { gzipSync } from 'node:zlib'
import { replaceTypes } from './public-types.js'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))

export interface PackageJson {
  readonly version: string
  readonly main: string
  readonly types: string
  readonly bin: Record<string, string>
  readonly exports: Record<string, string | Record<string, string>>
  readonly dependencies: Record<string, string>
}

let made: string | null = null

/** The folder of the unpacked package. The first project makes it, and it is gone with the process. */
function unpacked(): string {
  if (made !== null) return made
  const folder = mkdtempSync(join(tmpdir(), 'cuda-mempool-packed-'))
  process.on('exit', () => rmSync(folder, { recursive: true }))
  const pack = ['pack', '--ignore-scripts', '--offline', '--pack-destination', folder]
  execFileSync('npm', pack, { cwd: ROOT, stdio: ['ignore', 'ignore', 'ignore'] })
  const [tarball] = readdirSync(folder)
  execFileSync('tar', ['-xzf', join(folder, tarball), '-C', folder]) // to the folder `package`, as npm names it
  made = join(folder, 'package')
  replaceTypes(join(made, 'dist', 'src'))
  return made
}

/** An empty project with the package in its node_modules. Its user removes the folder. */
export class Project {
  readonly folder = mkdtempSync(join(tmpdir(), 'cuda-mempool-package-'))
  readonly installed = join(this.folder, 'node_modules', 'cuda-mempool')

  constructor() {
    cpSync(unpacked(), this.installed, { recursive: true })
    writeFileSync(join(this.folder, 'package.json'), '{ "name": "project", "private": true }')
    for (const name of Object.keys(this.packageJson().dependencies)) this.link(name)
  }

  packageJson(): PackageJson {
    return JSON.parse(readFileSync(join(this.installed, 'package.json'), 'utf8')) as PackageJson
  }

  /** The size of the package as npm packs it. npm itself would first search for the files again. */
  packedBytes(): number {
    const tar = execFileSync('tar', ['-c', '-C', this.installed, '.'], { maxBuffer: 2 ** 28 })
    return gzipSync(tar, { level: 9 }).length
  }

  /** Installs a dependency of this checkout in the project. */
  link(name: string): void {
    const link = join(this.folder, 'node_modules', name)
    mkdirSync(dirname(link), { recursive: true })
    symlinkSync(join(ROOT, 'node_modules', name), link)
  }

  /** Writes a file of the project; returns its path. */
  write(name: string, text: string): string {
    const path = join(this.folder, name)
    writeFileSync(path, text)
    return path
  }

  /** Runs Node in the project, by default on the simulated device; returns what it prints. */
  node(args: readonly string[], env: NodeJS.ProcessEnv = { CUDA_MEMPOOL_DEVICE: 'simulated' }): string {
    const options = { cwd: this.folder, encoding: 'utf8', env: { PATH: process.env['PATH'], ...env } } as const
    return execFileSync(process.execPath, args, options)
  }
}
