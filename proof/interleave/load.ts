// Loads rewritten modules, an instance of each for a run's settings: with one planted bug or none, for one kind of
// processor.

import { createRequire } from 'node:module'
import { join, posix } from 'node:path'
import { type Built, codeOf, PROJECT } from './build.js'
import type { Mutant } from './mutants.js'
import type { Runtime } from './runtime.js'

const OS_THREAD = 'src/core/threads/os-thread.ts'

type Exports = Record<string, unknown>

export class Modules {
  private readonly loaded = new Map<string, Exports>()
  private readonly native = createRequire(join(PROJECT, 'package.json'))

  constructor(
    private readonly built: Built,
    private readonly $: Runtime,
    /** modules of the project that the scheduler has its own of, by path */
    private readonly own: Readonly<Record<string, Exports>>,
    /** native modules that the scheduler has its own of, for the project's base */
    private readonly natives: Readonly<Record<string, Exports>>,
    private readonly mutant: Mutant | null,
  ) {}

  load(path: string): Exports {
    const known = this.own[path] ?? this.loaded.get(path)
    if (known !== undefined) return known
    const code = codeOf(this.built, path, this.mutant)
    if (code === undefined) throw new Error(`${path} was not rewritten`)
    const exports: Exports = {}
    this.loaded.set(path, exports)
    const require = (name: string) =>
      name.startsWith('.')
        ? this.load(posix.join(posix.dirname(path), name).replace(/\.js$/, '.ts'))
        : path === OS_THREAD && name in this.natives
          ? this.natives[name]
          : (this.native(name) as Exports)
    // import.meta has no url here: a module that asks for its place has its file name, as in a bundle of CommonJS.
    const parameters = ['exports', 'require', '$', '__filename']
    const module = `${code.replaceAll('import.meta', '({})')}\n//# sourceURL=${path}`
    new Function(...parameters, module)(exports, require, this.$, join(PROJECT, path))
    return exports
  }
}
