import assert from 'node:assert/strict'
import { test } from 'node:test'
import { shortPath } from './short-path.js'

test('a path is shortened to its package, or to the file and its folder', () => {
  const paths: [string, string][] = [
    ['/home/me/run/train.py:12 main', 'run/train.py:12 main'],
    ['train.py:12 main', 'train.py:12 main'],
    ['/env/lib/python3.11/site-packages/torch/optim/adam.py:178 step', 'torch/optim/adam.py:178 step'],
    ['file:///home/me/server.js:3 handle', 'me/server.js:3 handle'],
    ['/a/b.py:1 torch::f(a/b)', 'a/b.py:1 torch::f(a/b)'],
  ]
  for (const [site, short] of paths) assert.equal(shortPath(site), short)
})
