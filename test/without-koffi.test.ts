// The package on a machine where koffi has no binary, as after `npm install --omit=optional`, or is missing altogether.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { cpSync, realpathSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { Project } from './packed.fixture.js'

const REMEDY =
  /no GPU can be used: koffi, .*cannot be loaded \(Cannot find .*koffi.*npm install --include=optional.*simulated/i

const project = new Project()
after(() => rmSync(project.folder, { recursive: true }))
const link = join(project.folder, 'node_modules', 'koffi')
const target = realpathSync(link)

for (const koffi of ['without its binary', 'missing'] as const) {
  describe(`with koffi ${koffi}`, () => {
    before(() => {
      rmSync(link, { recursive: true, force: true })
      // The binary is a package of its own beside koffi's real folder, which a copy does not find.
      if (koffi === 'without its binary') cpSync(target, link, { recursive: true })
    })

    /** Runs the command line without CUDA_MEMPOOL_DEVICE, so on 'auto'. */
    const cli = (...args: string[]) => {
      const main = join(project.installed, 'dist/lib/cli/main.js')
      const options = { cwd: project.folder, encoding: 'utf8', env: { PATH: process.env['PATH'] } } as const
      return spawnSync(process.execPath, [main, ...args], options)
    }

    test('a recording is replayed', () => {
      const recording = fileURLToPath(new URL('../../traces/mlp-train-stacks.pickle.gz', import.meta.url))
      const { status, stdout, stderr } = cli('replay', recording, '--policy', 'recorded')
      assert.deepEqual([status, stderr], [0, ''])
      assert.match(stdout, /187\.12 MiB/)
    })

    test('info and demo name the remedy, and demo runs on the simulated device', () => {
      for (const command of ['info', 'demo']) {
        const { status, stdout, stderr } = cli(command)
        assert.deepEqual([status, stdout], [2, ''], command)
        assert.match(stderr, REMEDY)
        assert.match(stderr, /or use --device simulated\n$/)
      }
      for (const command of ['info', 'demo']) assert.equal(cli(command, '--device', 'simulated').status, 0, command)
    })

    test("openDevice() and openDevice('auto') throw NoDeviceError, and the simulated device has shared pools", () => {
      const program = project.write(
        'program.mjs',
        `import { openDevice } from 'cuda-mempool'
        for (const choice of [0, 'auto']) {
          try { openDevice(choice) } catch (error) { console.log(error.name, error.message, error.cause.name) }
        }
        console.log(openDevice('simulated').createSharedPool().allocate(300).byteLength)`,
      )
      const [first, second, third] = project.node([program], {}).split('\n')
      for (const line of [first, second]) {
        assert.match(line, REMEDY)
        assert.match(line, /^NoDeviceError .* NoLibraryError$/)
      }
      assert.equal(third, '300')
    })
  })
}
