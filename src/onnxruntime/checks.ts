// Checks of a service's arguments, before it registers or runs anything.

import { WrongTypeError } from '../core/base/argument-errors.js'
import { describe } from '../core/base/bytes.js'
import { NoLibraryError, PoolError } from '../core/base/errors.js'
import { HostPool } from '../core/pool/host/host-pool.js'
import type { LabelStore } from '../core/pool/labels.js'
import { Pool } from '../core/pool/pool.js'
import { type AnyPool, type Blocks, type Scope, sleeps } from './blocks.js'
import type { OnnxRuntimeLibrary, Pointer } from './library.js'

/** Throws RangeError if buffers of a device's pool, or of those behind a wrapper, cannot have the name as a label. */
export function checkName(call: string, name: string, pool: AnyPool): void {
  if (pool instanceof HostPool) return
  for (const { labels } of pool.sources as readonly { readonly labels?: LabelStore }[])
    labels?.check(`${call}: name`, name)
}

/** Sessions are made in turn: one that `create` of another awaits would wait for that one, which waits for it. */
export function checkNotWithinCreate(owned: Iterable<Blocks>, scope: Scope | undefined): void {
  for (const { owner, isMaking } of owned) {
    if (!isMaking || owner === null || owner !== scope) continue
    throw new PoolError(
      `createSession: the create function of '${owner.name}' has called it; await that session first`,
      'ERR_POOL_IN_USE',
    )
  }
}

export function checkReady(call: string, pool: Pool | HostPool): void {
  const { closed } = pool as { closed?: boolean }
  if (closed === true) throw new PoolError(`${call}: the pool is closed; serve another pool`, 'ERR_POOL_CLOSED')
  if (sleeps(pool)) throw new PoolError(`${call}: the pool sleeps; await pool.wake() first`, 'ERR_POOL_ASLEEP')
}

export function checkResults(results: HostPool, pool: AnyPool): void {
  if (!(results instanceof HostPool)) {
    throw new WrongTypeError(`serveOnnxRuntime: results must be a host pool, not ${describe(results)}`)
  }
  if (pool instanceof HostPool) {
    throw new WrongTypeError(
      "serveOnnxRuntime: results are for a device's pool; a host pool serves the CPU's results anyway",
    )
  }
  checkReady('serveOnnxRuntime: results', results)
  if (results.context.ordinal !== pool.context.ordinal) {
    throw new PoolError(
      'serveOnnxRuntime: results is of another device; make it from the device of the pool',
      'ERR_OTHER_DEVICE',
    )
  }
}

/** Asks for the CUDA provider by a call that answers; others end the process without it. */
export function checkCuda(library: OnnxRuntimeLibrary): void {
  const out: Pointer[] = [0]
  const failure = library.failure('CreateCUDAProviderOptions', out)
  if (failure !== null) {
    throw new NoLibraryError(
      `ONNX Runtime ${library.version} has no CUDA provider (${failure}); ` +
        'put libonnxruntime_providers_cuda.so and libonnxruntime_providers_shared.so of that version beside ' +
        library.path,
    )
  }
  library.call('ReleaseCUDAProviderOptions', out[0])
}

/** Throws unless a service of `own` can take memory from `pool`: one of the same kind and device, which is ready. */
export function checkServable(call: string, pool: AnyPool, own: AnyPool): void {
  const host = own instanceof HostPool
  if (!(pool instanceof (host ? HostPool : Pool))) {
    throw new WrongTypeError(`${call}: pool must be a ${host ? 'host pool' : "device's pool"}, not ${describe(pool)}`)
  }
  checkReady(call, pool)
  if (!(pool instanceof HostPool) && !(own instanceof HostPool) && pool.context !== own.context) {
    throw new PoolError(
      `${call}: pool is of another device; make it from the device of the service`,
      'ERR_OTHER_DEVICE',
    )
  }
}
