// The unit files and the pod run the keeper as it is: its file, its options, its socket and its limits.

import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { describe, test } from 'node:test'
import { parse } from 'yaml'
import { keeperOptionsOf } from '../src/cli/keep/keeper-options.js'
import { openFiles } from '../src/core/keeper/open-files.js'
import { usualSocketPath } from '../src/core/keeper/socket-path.js'
import { ROOT, read } from './documents.fixture.js'

/** The keys that systemd knows and these files use; a wrong one it ignores with a warning. */
const KEYS: Readonly<Record<string, readonly string[]>> = {
  Unit: ['Description', 'Requires', 'After'],
  Install: ['Also', 'WantedBy'],
  Socket: ['ListenSequentialPacket', 'SocketMode', 'DirectoryMode'],
  Service: [
    'Type',
    'ExecStart',
    'Restart',
    'FileDescriptorStoreMax',
    'FileDescriptorStorePreserve',
    'Environment',
    'LimitNOFILE',
    'MemoryMax',
    'RestrictAddressFamilies',
    'NoNewPrivileges',
    'User',
    'RuntimeDirectory',
    'RuntimeDirectoryMode',
    'RuntimeDirectoryPreserve',
    'PrivateNetwork',
    'DevicePolicy',
  ],
}
const PACKAGE = 'node_modules/cuda-mempool/'
const STORED = 10_000

/** The values of a unit file by section and key. */
function unit(name: string): Record<string, Record<string, string>> {
  const sections: Record<string, Record<string, string>> = {}
  let section = ''
  for (const line of read(`deploy/${name}`).split('\n')) {
    const [, title] = /^\[(\w+)\]$/.exec(line) ?? []
    const [, key, value] = /^(\w+)=(.+)$/.exec(line) ?? []
    if (title !== undefined) {
      section = title
      sections[title] = {}
    } else if (key !== undefined) {
      assert.ok(KEYS[section]?.includes(key), `${name}: ${key} in ${section}`)
      assert.ok(!(key in sections[section]), `${name}: ${key} twice`)
      sections[section][key] = value
    } else assert.match(line, /^(#.*)?$/, name)
  }
  return sections
}

/** The options of the keeper that a command runs. */
function keeperOf(words: readonly string[]) {
  const [node, file, ...others] = words
  assert.match(node, /(^|\/)node$/)
  assert.ok(existsSync(join(ROOT, file.slice(file.indexOf(PACKAGE) + PACKAGE.length))), file)
  return keeperOptionsOf(others)
}

describe('systemd', () => {
  const { Unit, Service, Install } = unit('cuda-mempool-keep.service')
  const socket = unit('cuda-mempool-keep.socket')

  test('runs the keeper, and stores as much as it keeps', () => {
    const options = keeperOf(Service['ExecStart'].split(' '))
    assert.deepEqual([options?.socket, options?.replace], [null, false])
    assert.equal(Service['Type'], 'notify')
    assert.equal(Service['FileDescriptorStoreMax'], String(STORED + 1), 'and the state')
    assert.equal(Service['Environment'], `FDSTORE=${Service['FileDescriptorStoreMax']}`)
    assert.ok(openFiles(Number(Service['LimitNOFILE'])).descriptors >= STORED)
  })

  test('has the socket where programs look for it', () => {
    for (const name of [Unit['Requires'], Unit['After'], Install['Also']])
      assert.equal(name, 'cuda-mempool-keep.socket')
    const { ListenSequentialPacket, SocketMode, DirectoryMode } = socket['Socket']
    assert.equal(ListenSequentialPacket, usualSocketPath({ XDG_RUNTIME_DIR: '/run' }).replace('/run', '%t'))
    assert.deepEqual([SocketMode, DirectoryMode], ['0600', '0700'])
  })

  test('knows the lines of the comment for a unit of the system', () => {
    const lines = [...read('deploy/cuda-mempool-keep.service').matchAll(/^# {3}(\w+)=/gm)].map(([, key]) => key)
    assert.ok(lines.length > 3)
    for (const key of lines) assert.ok(KEYS['Service'].includes(key), key)
  })
})

test('a pod of Kubernetes runs the keeper as a sidecar, whose socket the server has', () => {
  const { spec } = parse(read('deploy/kubernetes.yml'))
  const [keeper] = spec.initContainers
  const [server] = spec.containers
  assert.equal(keeper.restartPolicy, 'Always')
  assert.equal(keeper.resources.limits['nvidia.com/gpu'], undefined)
  const socket = keeperOf(keeper.command)?.socket
  assert.ok(socket)
  assert.equal(server.env[0].value, socket)
  assert.deepEqual(keeper.startupProbe.exec.command.slice(2), ['keep', 'list', '--socket', socket])
  const [volume] = spec.volumes
  for (const { volumeMounts } of [keeper, server]) {
    assert.deepEqual(volumeMounts, [{ name: volume.name, mountPath: '/keep' }])
  }
  assert.notEqual(dirname(socket), '/keep', 'the folder of a volume is open to others')
  assert.equal(typeof spec.securityContext.runAsUser, 'number')
})
