import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Action } from '../trace.js'
import { TraceBuilder } from '../trace-builder.js'
import { platformOf } from './platform.js'

function platformWith(...frames: readonly (readonly [file: string, name: string])[]) {
  const builder = new TraceBuilder()
  const stack = builder.stacks.number(frames.map(([file, name]) => builder.stacks.entry(file, 1, name)))
  builder.add(Action.alloc, 0, 512, 0, 0, stack)
  return platformOf(builder.build({ file: 'built' }))
}

test('paths of a drive, of a network, long and relative ones tell Windows, and so do its functions', () => {
  for (const file of ['D:\\a\\b.py', 'd:/a/b.py', '\\\\host\\share\\b.py', '\\\\?\\E:\\a\\b.py', 'a\\b.py']) {
    assert.equal(platformWith([file, 'f']), 'Windows', file)
  }
  assert.equal(platformWith(['lib\\torch\\nn.pyc', 'f']), 'Windows')
  assert.equal(platformWith(['??', 'BaseThreadInitThunk']), 'Windows')
  assert.equal(platformWith(['??', 'RtlUserThreadStart+0x21']), 'Windows')
})

test('other systems, WSL, and C++ files that were compiled on Windows do not', () => {
  for (const file of ['/home/a/b.py', 'a/b.py', 'a/b\\c.py', '\\\\wsl.localhost\\Ubuntu\\b.py', '<stdin>', '??']) {
    assert.equal(platformWith([file, 'f']), null, file)
  }
  assert.equal(platformWith(['C:\\build\\x.cpp', 'g'], ['/home/a/b.py', 'f']), null)
})
