import assert from 'node:assert/strict'
import { test } from 'node:test'
import { narrowed, shortSite } from './short-path.js'

test('a path is shortened to its package, or to the file and two folders, without the folder of a person', () => {
  const paths: [string, string][] = [
    ['/home/me/run/train.py:12 main', 'run/train.py:12 main'],
    ['/home/me/train.py:12 main', 'train.py:12 main'],
    ['/data/home/me/a/b/c/train.py:12 main', 'b/c/train.py:12 main'],
    ['/Users/me/models/train.py:12 main', 'models/train.py:12 main'],
    ['\\\\wsl.localhost\\Ubuntu\\home\\me\\train.py:12 main', 'train.py:12 main'],
    ['\\\\?\\C:\\Users\\me\\train.py:12 main', 'train.py:12 main'],
    ['/root/train.py:12 main', 'train.py:12 main'],
    ['train.py:12 main', 'train.py:12 main'],
    ['/env/lib/python3.11/site-packages/torch/optim/adam.py:178 step', 'torch/optim/adam.py:178 step'],
    ['torch/nn/modules/linear.py:125 forward', 'torch/nn/modules/linear.py:125 forward'],
    ['/opt/pytorch/torch/nn/modules/linear.py:125 forward', 'torch/nn/modules/linear.py:125 forward'],
    ['/usr/lib/python3.11/copy.py:178 deepcopy', 'copy.py:178 deepcopy'],
    ['file:///home/me/server.js:3 handle', 'server.js:3 handle'],
    ['/a/b.py:1 torch::f(a/b)', 'a/b.py:1 torch::f(a/b)'],
    ['C:\\Users\\me\\net\\model.py:88 forward', 'net\\model.py:88 forward'],
    ['D:\\work\\Net\\net\\ldm\\model.py:88 forward', 'net\\ldm\\model.py:88 forward'],
    ['C:\\Python310\\Lib\\site-packages\\torch\\nn\\modules\\linear.py:114 f', 'torch\\nn\\modules\\linear.py:114 f'],
    ['/tmp/ipykernel_7/1234.py:3 <module>', 'ipykernel_7/1234.py:3 <module>'],
    ['<stdin>:1 <module>', '<stdin>:1 <module>'],
    ['backward of mm', 'backward of mm'],
  ]
  for (const [site, short] of paths) assert.equal(shortSite(site), short)
})

test('a narrow column takes folders and namespaces from the left, and no part of a name', () => {
  assert.equal(narrowed('net/ldm/model.py:88 forward', 20), 'net/ldm/model.py:88 forward')
  assert.equal(narrowed('net/ldm/model.py:88 forward', 18), '…/ldm/model.py:88 forward')
  assert.equal(narrowed('net\\ldm\\model.py:88 forward', 15), '…\\model.py:88 forward')
  assert.equal(narrowed('net/ldm/model.py:88 forward', 3), '…/model.py:88 forward')
  assert.equal(narrowed('at::native::cudnn_convolution', 20), '…cudnn_convolution')
  assert.equal(narrowed('name_without_folders', 5), 'name_without_folders')
})
