import assert from 'node:assert/strict'
import { copyFileSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { gunzipSync } from 'node:zlib'
import { parseBytes } from '../../core/base/bytes.js'
import { decodePicture } from '../../recordings/picture/codec/codec.js'
import type { PageData } from '../../recordings/report/page/page-data.js'
import { unwrapped } from '../../recordings/report/trace-texts.fixture.js'
import { pickleSnapshot } from '../../recordings/trace/pytorch/pytorch-snapshot-writer.js'
import { Action } from '../../recordings/trace/trace.js'
import { TraceBuilder } from '../../recordings/trace/trace-builder.js'
import { refused, run, runProcess } from '../command-line.fixture.js'

const MLP = 'traces/mlp-train-stacks.pickle.gz'

describe('cuda-mempool report', () => {
  let folder: string
  before(() => {
    folder = mkdtempSync(join(tmpdir(), 'cuda-mempool-report-'))
  })
  after(() => rmSync(folder, { recursive: true }))

  const report = (...words: string[]) => run(['report', ...words])
  /** A recorded file in a folder of its own. */
  const recording = (name: string) => {
    const own = mkdtempSync(join(folder, 'run-'))
    copyFileSync(MLP, join(own, name))
    return { own, file: join(own, name) }
  }
  const dataOf = (page: string) =>
    JSON.parse(/<script type="application\/json" id="data">(.*?)<\/script>/s.exec(page)![1]) as PageData
  const pictureOf = (page: string, index: number) => {
    const packed = new RegExp(`id="picture-${index}">([^<]*)<`).exec(page)![1]
    return decodePicture(gunzipSync(Buffer.from(packed, 'base64')))
  }
  const refuses = (words: string[], message: RegExp) => assert.match(refused(['report', ...words]), message)

  test('reads standard input, for a page that is named', () => {
    const path = join(folder, 'piped.html')
    const words = ['report', '-', '--policy', 'recorded', '-o', path]
    const { status, stdout, stderr } = runProcess(words, {}, readFileSync(MLP))
    assert.deepEqual([status, stderr], [0, ''])
    assert.match(stdout, /^PyTorch reserved at most 198 MiB for .*\nwrote \S+piped\.html; open it in a browser\n$/)
    assert.equal(dataOf(readFileSync(path, 'utf8')).recordings.length, 1)
    refuses(['-'], /: -: standard input has no name; name the page by -o$/m)
    refuses(['-', '-', '-o', path, '--force'], /: -: standard input has one recording$/m)
  })

  test('of a recording that ran out of memory, the page has what was tried, and the minimum of each policy', () => {
    const own = mkdtempSync(join(folder, 'run-'))
    const path = join(own, 'page.html')
    const { status, stdout, stderr } = report('traces/oom-retry-2gib.pickle.gz', '-o', path)
    assert.deepEqual([status, stderr], [0, ''])
    assert.match(
      unwrapped(stdout),
      /^Out of memory: fragmentation\. To serve the run, raise the program's own limit with today's settings to 2\.33 GiB .* or with expandable_segments:True to 2\.08 GiB .* PyTorch reserved at most 2 GiB for at most 1\.93 GiB in use/,
    )
    const [{ advice, remedies, policies, columns, inUseBytes, leastBytes }] = dataOf(
      readFileSync(path, 'utf8'),
    ).recordings
    assert.match(
      advice[0].text,
      /^Would have served the last failed request, by replay: PyTorch, default no · .* cuda-mempool maybe · .* maybe: that/,
    )
    assert.deepEqual(remedies!.columns, ['needs', 'fits your 2 GiB to 2.01 GiB', 'with the limit raised'])
    const [{ line, cells }] = remedies!.rows
    assert.equal(line, 'export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True')
    assert.deepEqual(cells, ['2.08 GiB', 'no: 7 requests fail', 'to 2.08 GiB: yes'])
    assert.deepEqual(
      columns.map(({ title }) => title),
      ['fits in', 'most reserved'],
      'what was recorded did not serve the failed requests, so no ratio compares it with the other rows',
    )
    assert.ok(inUseBytes < leastBytes)
    const minimum = columns.findIndex(({ title }) => title === 'fits in')
    const least = new Map(policies.map(({ policy, cells }) => [policy, cells[minimum]]))
    assert.ok(parseBytes(least.get('cuda-mempool')!) < parseBytes(least.get('pytorch')!))
    assert.equal(least.get('recorded'), '–')
  })

  test('writes the page beside the recording, and says the verdict, the path and the next line', () => {
    const { own, file } = recording('run.pickle.gz')
    const { status, stdout, stderr } = report(file)
    assert.deepEqual([status, stderr], [0, ''])
    assert.match(
      stdout,
      /^PyTorch reserved at most 198 MiB for at most 187.12 MiB in use: 1.06 ×\.\ncuda-mempool serves the same run in /,
    )
    assert.match(stdout, /wrote .*run\.html; open it in a browser\n\nNext: npx cuda-mempool replay .*\n$/)
    assert.deepEqual(readdirSync(own).sort(), ['run.html', 'run.pickle.gz'])
    const page = readFileSync(join(own, 'run.html'), 'utf8')
    assert.match(page, /Content-Security-Policy" content="default-src 'none'; script-src 'sha256-/)
    const [{ policies, leastBytes }] = dataOf(page).recordings
    assert.equal(policies.length, 7)
    assert.equal(leastBytes, 187.1171875 * 2 ** 20)
    assert.equal(pictureOf(page, 0).events, 794)
  })

  test('refuses a page of another ending before it reads anything', () => {
    refuses(['no-such-file', '-o', join(folder, 'page.txt')], /--output: '.*page\.txt' does not end in \.html/)
  })

  test('takes a part of the events', () => {
    const { own, file } = recording('run.pickle.gz')
    const page = join(own, 'part.html')
    for (const [option, value, events] of [
      ['--last', '0.3k', 300],
      ['--events', '100..500', 400],
    ] as const) {
      assert.equal(report(file, '--force', '--policy', 'recorded', option, value, '-o', page).status, 0)
      const picture = pictureOf(readFileSync(page, 'utf8'), 0)
      assert.equal(picture.events, events)
      assert.ok(picture.blocks.initial > 4, 'blocks that are held at its start are there')
      assert.equal(
        picture.policies[0].place!.some(unit => unit < 0),
        false,
        'every block has an address',
      )
    }
    refuses(
      [file, '-o', join(own, 'x.html'), '--last', 'many'],
      /--last: 'many' is no number of events like 500k or 2M/,
    )
    refuses([file, '-o', join(own, 'x.html'), '--events', '5'], /--events: '5' is no range like 1M\.\.2M/)
    refuses([file, '-o', join(own, 'x.html'), '--events', '1M..2M'], /has no events in 1M\.\.2M; it has 794/)
    refuses([file, '-o', join(own, 'x.html'), '--events', '1..2', '--last', '5'], /give one of them/)
  })

  test('makes a tab of each file, with names that differ for files of one name', () => {
    const [first, second] = [recording('rank0.pickle.gz'), recording('rank0.pickle.gz')]
    const page = join(first.own, 'ranks.html')
    const { status, stdout } = report(first.file, second.file, '--policy', 'recorded', '-o', page)
    assert.equal(status, 0)
    assert.match(
      stdout,
      /^The 2 recordings are alike: .* reserved\.\nrank0\.pickle\.gz: PyTorch [^:]*:\s1\.0. ×\.\nrank0\.pickle\.gz \(2\): PyTorch/,
    )
    const { recordings } = dataOf(readFileSync(page, 'utf8'))
    assert.deepEqual(
      recordings.map(({ tab }) => tab),
      ['rank0.pickle.gz', 'rank0.pickle.gz (2)'],
    )
  })

  test('shows a recording without stacks, steps and times, and names of markup and of 100 kB', () => {
    const builder = new TraceBuilder()
    const name = '</script><script>alert(1)</script>'
    const stack = builder.stacks.number([builder.stacks.entry(name, 1, 'x'.repeat(1e5))])
    builder.add(Action.alloc, 2 ** 30, 4096, 0, 0, stack)
    builder.add(Action.freeRequested, 2 ** 30, 4096, 0, 0)
    const file = join(folder, 'hostile.pickle')
    writeFileSync(file, pickleSnapshot(builder.build({ file })))
    assert.equal(report(file).status, 0)
    const page = readFileSync(join(folder, 'hostile.html'), 'utf8')
    assert.ok(!page.includes('alert(1)'), 'a frame is in the packed picture only')
    const { frames } = pictureOf(page, 0).stacks
    assert.ok(frames[0].file === name && frames[0].name.length === 300)
  })

  test('says in one line that a file is empty or damaged, and writes nothing', () => {
    const file = join(folder, 'empty.pickle')
    writeFileSync(file, '')
    refuses([file], /empty\.pickle: /)
    writeFileSync(file, pickleSnapshot(new TraceBuilder().build({ file })))
    refuses([file], /empty\.pickle: .*holds no events/)
    assert.equal(existsSync(join(folder, 'empty.html')), false)
  })
})
