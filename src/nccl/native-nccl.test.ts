// The binding over a stand-in for libnccl in C: the arguments that C gets, and the results.

import assert from 'node:assert/strict'
import { describe, it, type TestContext } from 'node:test'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { NCCL_RESULT, STAT_TOTAL, SUSPEND_MEMORY, WINDOW_SYMMETRIC } from './constants.js'
import { NativeNccl } from './native-nccl.js'
import { Cell } from './nccl.js'
import { argumentsOf, noCompiler, STAND_IN, standIn } from './nccl-library.fixture.js'
import { type NcclFunctions, openNcclLibrary } from './nccl-library.js'

function opened(t: TestContext) {
  const path = standIn(t, 22907)
  return { path, nccl: new NativeNccl(openNcclLibrary([path])) }
}

/** Moves what V8 can move. */
function collectGarbage(): void {
  setFlagsFromString('--expose-gc')
  const gc = runInNewContext('gc') as () => void
  for (let round = 0; round < 3; round++) gc()
}

/** An ncclConfig_t of NCCL 2.17. Later libraries add defaults to it. */
const CONFIG = {
  size: 48n,
  magic: 0xcafebeef,
  version: 21700,
  blocking: 0,
  unset: [-(2 ** 31), -(2 ** 31), -(2 ** 31)],
  netName: 0n,
  splitShare: -(2 ** 31),
  padding: -(2 ** 31),
}

function parsed(config: Uint8Array): typeof CONFIG {
  const view = new DataView(config.buffer, config.byteOffset, config.byteLength)
  return {
    size: view.getBigUint64(0, true),
    magic: view.getUint32(8, true),
    version: view.getUint32(12, true),
    blocking: view.getInt32(16, true),
    unset: [20, 24, 28].map(at => view.getInt32(at, true)),
    netName: view.getBigUint64(32, true),
    splitShare: view.getInt32(40, true),
    padding: view.getInt32(44, true),
  }
}

describe('NCCL over functions in JavaScript', () => {
  const functions = {
    ncclGetLastError: (comm: number) => (comm === 0 ? null : 'a warning'),
    ncclGetUniqueId: (id: Uint8Array) => id.fill(9).length,
    ncclCommInitRankConfig: (comm, ranks, id, rank, config) => {
      assert.deepEqual([config?.length, parsed(config!)], [48, CONFIG])
      assert.deepEqual([ranks, rank, id.internal], [2, 1, STAND_IN.id])
      comm.set([5, 1])
      return NCCL_RESULT.ncclInProgress
    },
    ncclAllReduce: () => NCCL_RESULT.ncclRemoteError,
  } satisfies Partial<NcclFunctions>
  const nccl = new NativeNccl({ path: 'a stand-in', version: 22304, functions: functions as never })

  it('joins with the id and a configuration that does not block', () => {
    const comm = new Cell()
    assert.equal(nccl.ncclCommInitRankConfig(comm, 2, STAND_IN.id, 1), NCCL_RESULT.ncclInProgress)
    assert.equal(comm.value, 2 ** 32 + 5)
    assert.throws(() => nccl.ncclGetUniqueId(new Uint8Array(127)), { name: 'AssertionError' })
    assert.throws(() => nccl.ncclCommInitRankConfig(comm, 2, new Uint8Array(129), 1), { name: 'AssertionError' })
  })

  it('goes over to a split that blocks, once all ranks have come', () => {
    const [first, split] = [2 ** 32 + 5, 2 ** 32 + 6]
    const calls: unknown[] = []
    let now: number = NCCL_RESULT.ncclInProgress
    const functions = {
      ncclCommInitRankConfig: comm => {
        comm.set([5, 1])
        return NCCL_RESULT.ncclInProgress
      },
      ncclCommGetAsyncError: (_comm, state) => {
        state[0] = now
        return NCCL_RESULT.ncclSuccess
      },
      ncclCommSplit: (comm, color, key, written, config) => {
        assert.deepEqual(parsed(config), { ...CONFIG, blocking: 1 })
        written.set([6, 1])
        return calls.push(['split', comm, color, key]) * 0 + NCCL_RESULT.ncclInProgress
      },
      ncclCommFinalize: comm => calls.push(['finalize', comm]) * 0,
      ncclCommDestroy: comm => calls.push(['destroy', comm]) * 0,
    } satisfies Partial<NcclFunctions>
    const joining = new NativeNccl({ path: 'a stand-in', version: 22304, functions: functions as never })
    const [comm, state] = [new Cell(), new Cell()]
    assert.equal(joining.ncclCommInitRankConfig(comm, 4, STAND_IN.id, 3), NCCL_RESULT.ncclInProgress)
    const ask = () => {
      assert.equal(joining.ncclCommGetAsyncError(comm.value, state), NCCL_RESULT.ncclSuccess)
      return state.value
    }
    assert.deepEqual([ask(), calls], [NCCL_RESULT.ncclInProgress, []])
    now = NCCL_RESULT.ncclSuccess
    const states = [ask(), ask(), ask(), ask()]
    assert.deepEqual(states, [NCCL_RESULT.ncclInProgress, NCCL_RESULT.ncclInProgress, 0, 0])
    assert.deepEqual(calls, [
      ['split', first, 0, 3],
      ['finalize', first],
      ['destroy', first],
    ])
    assert.equal(comm.value, split)
  })

  it('has no text for a null pointer, and calls a collective without a function between', () => {
    assert.deepEqual([nccl.ncclGetLastError(0), nccl.ncclGetLastError(1)], ['', 'a warning'])
    assert.equal(nccl.ncclAllReduce, functions.ncclAllReduce)
  })
})

describe('NCCL over its library', { skip: noCompiler }, () => {
  it('says what it is', t => {
    const { path, nccl } = opened(t)
    assert.deepEqual([nccl.origin, nccl.version, nccl.simulated], [path, 22907, false])
    assert.equal(nccl.ncclGetErrorString(NCCL_RESULT.ncclRemoteError), 'remote process exited')
    assert.deepEqual([nccl.ncclGetLastError(0), nccl.ncclGetLastError(STAND_IN.comm)], ['', 'a warning'])
  })

  it('joins with the id by value and a configuration that does not block', t => {
    const { path, nccl } = opened(t)
    const id = new Uint8Array(128)
    assert.equal(nccl.ncclGetUniqueId(id), NCCL_RESULT.ncclSuccess)
    assert.deepEqual(id, STAND_IN.id)
    const comm = new Cell()
    assert.equal(nccl.ncclCommInitRankConfig(comm, 8, id, 5), NCCL_RESULT.ncclInProgress)
    assert.equal(comm.value, STAND_IN.comm)
    assert.deepEqual(argumentsOf(path), [8, 5])
    id[127]++
    assert.equal(nccl.ncclCommInitRankConfig(new Cell(), 8, id, 5), NCCL_RESULT.ncclInvalidArgument)
    assert.equal(nccl.ncclCommFinalize(comm.value), NCCL_RESULT.ncclSuccess)
  })

  it('lets a thread write a cell after the call, wherever V8 has moved it', t => {
    const { nccl } = opened(t)
    const comm = new Cell()
    nccl.ncclCommInitRankConfig(comm, 1, STAND_IN.id, 0)
    collectGarbage()
    assert.equal(comm.value, STAND_IN.comm)
    nccl.ncclCommFinalize(comm.value)
    assert.equal(comm.value, STAND_IN.laterComm)
  })

  it('keeps a cell that a thread writes after the program has dropped it', async t => {
    const { nccl } = opened(t)
    const cell = (() => {
      const comm = new Cell()
      nccl.ncclCommInitRankConfig(comm, 1, STAND_IN.id, 0)
      return new WeakRef(comm)
    })()
    await new Promise(resolve => setImmediate(resolve)) // a WeakRef holds its target until the end of a turn
    collectGarbage()
    nccl.ncclCommFinalize(STAND_IN.comm)
    assert.equal(cell.deref()?.value, STAND_IN.laterComm)
  })

  it('gives the results that the library writes', t => {
    const { path, nccl } = opened(t)
    const { comm } = STAND_IN
    const cell = new Cell()
    cell.value = 2 ** 53 - 1
    assert.equal(nccl.ncclCommGetAsyncError(comm, cell), 0)
    assert.equal(cell.value, NCCL_RESULT.ncclInProgress)
    assert.equal(nccl.ncclCommRegister(comm, 2 ** 46, 2 ** 37, cell), 0)
    assert.equal(cell.value, STAND_IN.handle)
    assert.deepEqual(argumentsOf(path), [comm, 2 ** 46, 2 ** 37])
    assert.equal(nccl.ncclCommWindowRegister(comm, 2 ** 46, 2 ** 37, cell, WINDOW_SYMMETRIC), 7)
    assert.equal(cell.value, STAND_IN.window)
    assert.deepEqual(argumentsOf(path), [comm, 2 ** 46, 2 ** 37, WINDOW_SYMMETRIC])
    assert.equal(nccl.ncclCommMemStats(comm, STAT_TOTAL, cell), 0)
    assert.equal(cell.value, STAND_IN.bytes)
    assert.deepEqual(argumentsOf(path), [comm, STAT_TOTAL])
  })

  it('passes all arguments of the other calls as they are', t => {
    const { path, nccl } = opened(t)
    const [comm, stream, send, receive] = [STAND_IN.comm, 0x55aa_1234_5678, 0x7fab_cdef_0100, 2 ** 53 - 256]
    const [count, type, op, root] = [2 ** 40 + 3, 9, 4, 6]
    const passes = (call: (...args: number[]) => number, ...args: number[]) => {
      const code = call(...args)
      assert.deepEqual([code, argumentsOf(path)], [0, args])
    }
    passes(nccl.ncclAllReduce, send, receive, count, type, op, comm, stream)
    passes(nccl.ncclReduce, send, receive, count, type, op, root, comm, stream)
    passes(nccl.ncclReduceScatter, send, receive, count, type, op, comm, stream)
    passes(nccl.ncclAllGather, send, receive, count, type, comm, stream)
    passes(nccl.ncclBroadcast, send, receive, count, type, root, comm, stream)
    passes(nccl.ncclAlltoAll, send, receive, count, type, comm, stream)
    passes(nccl.ncclSend, send, count, type, root, comm, stream)
    passes(nccl.ncclRecv, receive, count, type, root, comm, stream)
    passes(nccl.ncclCommDeregister, comm, STAND_IN.handle)
    passes(nccl.ncclCommWindowDeregister, comm, STAND_IN.window)
    passes(nccl.ncclCommSuspend, comm, SUSPEND_MEMORY)
    passes(nccl.ncclCommResume, comm)
    passes(nccl.ncclCommDestroy, comm)
    passes(each => nccl.ncclCommAbort(each), comm)
    passes(nccl.ncclGroupStart)
    assert.deepEqual([nccl.ncclGroupEnd(), argumentsOf(path)], [NCCL_RESULT.ncclInProgress, []])
  })
})
