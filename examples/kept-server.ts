// A model server whose weights outlive it. It is killed, and its next start finds them on the GPU. Then a second
// version takes over while the first still answers. The keeper, a process of its own, holds the memory.
// docs/keep.md explains it. In a clone: npm run build && node dist/examples/kept-server.js

import { spawn } from 'node:child_process'
import cluster, { type Worker } from 'node:cluster'
import { once } from 'node:events'
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { createServer } from 'node:http'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { openDevice } from 'cuda-mempool'
import { openKeep } from 'cuda-mempool/processes'

const SOURCE = `
extern "C" __global__ void layer(const float *weights, float input, float *output, int size) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= size) return;
  float sum = 0;
  for (int i = 0; i < size; i++) sum += weights[(size_t)i * size + row] * input;
  output[row] = sum;
}
`

/** The model server, in a process for each version. */
async function serve(version: string, path: string, port: number): Promise<void> {
  using device = openDevice('auto')
  const size = device.simulated ? 64 : 16_384 // 1 GiB of weights on a GPU
  using keep = await openKeep(device, { path })
  const bytes = size * size * Float32Array.BYTES_PER_ELEMENT
  using weights = await keep.region('weights', { bytes, version }, region => {
    region.place('layer', Float32Array, size * size).fill(version === 'v1' ? 1 : 2) // stands for a load that takes long
  })
  using module = device.compileKernels(SOURCE, {
    simulated: {
      layer: ({ args, memory }) => {
        const columns = memory.load(Float32Array, args.pointer(0), size * size)
        const sumOf = (row: number) => columns.filter((_, i) => i % size === row).reduce((sum, w) => sum + w, 0)
        const sums = Float32Array.from({ length: size }, (_, row) => sumOf(row) * args.float32(1))
        memory.store(args.pointer(2), sums)
      },
    },
  })
  const layer = module.kernel('layer')
  const matrix = weights.array('layer', Float32Array)
  using pool = device.createPool()
  const server = createServer(async (_, response) => {
    using output = pool.allocateArray(Float32Array, size)
    layer.launch({ grid: Math.ceil(size / 256), block: 256 }, matrix, 0.5, output, size)
    const [sum = 0] = await output.read()
    const text = `${version} answers ${sum / size}, its weights were ${weights.created ? 'loaded' : 'kept'}`
    response.setHeader('Connection', 'close').end(text)
  })
  server.listen(port, 'localhost')
  await once(process, 'disconnect') // no new requests come from now on
  server.close() // waits for the answers to those that it has
  await once(server, 'close')
}

/** Starts a server; resolves when it takes requests. */
async function start(version: string, path: string, port: number): Promise<{ worker: Worker; port: number }> {
  const machine = join(dirname(path), 'machine') // without a GPU the servers share a simulated one
  mkdirSync(machine, { recursive: true })
  const KEPT_SERVER = JSON.stringify([version, path, port])
  const worker = cluster.fork({ KEPT_SERVER, CUDA_MEMPOOL_SIMULATED: machine })
  const [address] = await once(worker, 'listening')
  return { worker, port: address.port }
}

async function main(): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'kept-'))
  const path = join(folder, 'keep.sock')
  const command = fileURLToPath(new URL('cli/main.js', import.meta.resolve('cuda-mempool')))
  const keeper = spawn(process.execPath, [command, 'keep', '--socket', path], { stdio: ['ignore', 'pipe', 'inherit'] })
  await once(keeper.stdout, 'data') // it listens
  cluster.setupPrimary({ exec: fileURLToPath(import.meta.url) })

  const first = await start('v1', path, 0)
  const { port } = first
  const ask = async () => (await fetch(`http://localhost:${port}`)).text()
  console.log(await ask())

  const killedAt = performance.now()
  first.worker.process.kill('SIGKILL')
  await once(first.worker, 'exit')
  const { worker: again } = await start('v1', path, port)
  console.log(await ask())
  console.log(`from SIGKILL to this answer: ${Math.round(performance.now() - killedAt)} ms`)

  const answers: string[] = []
  const asking = (async () => {
    while (answers.at(-1)?.startsWith('v2') !== true) answers.push(await ask())
  })()
  const { worker: second } = await start('v2', path, port)
  again.disconnect()
  await Promise.all([once(again, 'exit'), asking])
  console.log(`${answers.length} requests meanwhile, and each was answered; now ${answers.at(-1)}`)

  second.disconnect()
  await once(second, 'exit')
  keeper.kill()
  await once(keeper, 'exit')
  rmSync(folder, { recursive: true })
}

const given = process.env['KEPT_SERVER']
if (cluster.isPrimary) await main()
else await serve(...(JSON.parse(given!) as [string, string, number]))
