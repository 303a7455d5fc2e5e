import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { describe, it } from 'node:test'
import { fileURLToPath } from 'node:url'
import { refusalOf } from './publishable.js'

const file = (path: string) => fileURLToPath(new URL(`../../${path}`, import.meta.url))
const packageJson = JSON.parse(readFileSync(file('package.json'), 'utf8'))

describe('packing for others', () => {
  it('needs the address of the repository, as npm pkg set writes it or as npm writes it out', () => {
    for (const repository of [
      'github:someone/cuda-mempool',
      'gitlab:group/team/cuda-mempool',
      { type: 'git', url: 'git+https://github.com/someone/cuda-mempool.git' },
    ]) {
      assert.equal(refusalOf({ repository }), null)
    }
  })

  it('is refused in one line that has the command', () => {
    const remedy = /: run npm pkg set repository=github:OWNER\/cuda-mempool with the owner's name, or .*local/
    for (const wrong of [{}, { repository: '' }, { repository: {} }, { repository: 'github:OWNER/cuda-mempool' }]) {
      assert.match(refusalOf(wrong)!, remedy)
      assert.doesNotMatch(refusalOf(wrong)!, /\n/)
    }
  })

  it('runs before each pack, unless the package stays on this computer', () => {
    assert.match(packageJson.scripts.prepack, /\bnode dist\/bundle\/publishable\.js &&/)
    const run = (pack: string) =>
      spawnSync(process.execPath, [file('dist/bundle/publishable.js')], {
        encoding: 'utf8',
        env: { CUDA_MEMPOOL_PACK: pack },
      })
    const missing = refusalOf(packageJson)
    const refused = missing === null ? { status: 0, stderr: '' } : { status: 1, stderr: `${missing}\n` }
    for (const [pack, expected] of [
      ['', refused],
      ['local', { status: 0, stderr: '' }],
    ] as const) {
      const { status, stderr } = run(pack)
      assert.deepEqual({ status, stderr }, expected)
    }
  })
})

describe('the release workflow', () => {
  const workflow = readFileSync(file('.github/workflows/release.yml'), 'utf8')

  it('runs everything that continuous integration runs, and publishes with provenance', () => {
    assert.ok(workflow.indexOf('.ci/run') < workflow.indexOf('npm publish'))
    assert.match(workflow, /^ {2}id-token: write/m)
    assert.deepEqual(packageJson.publishConfig, { access: 'public', provenance: true })
  })
})
