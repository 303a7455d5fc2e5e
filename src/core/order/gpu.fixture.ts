// A GPU with clocks, for tests that need a real one: GPU 0 unless the test names another. Opening it throws if there
// is no GPU. Work is kept pending in two ways. `hold` waits for the test to open a gate, a word of host memory that
// the kernel reads, so that a test decides what is pending and measures no time. `spin` lasts for a given time, for
// tests in which the host itself waits.

import { CU_STREAM_NON_BLOCKING } from '../driver/constants.js'
import { Context } from '../driver/context.js'
import { openLibrary } from '../driver/native/library.js'
import { NativeDriver } from '../driver/native/native-driver.js'
import { Clocks } from './clocks.js'
import { Stream } from './stream.js'

/** Returns when `*gate` is not 0, or after `most_ns` nanoseconds. */
export const WAIT_FOR_GATE = `
.version 6.3
.target sm_70
.address_size 64
.visible .entry wait_for_gate(.param .u64 gate, .param .u64 most_ns)
{
  .reg .pred %open, %again;
  .reg .b32 %seen;
  .reg .b64 %gate, %most, %start, %now;
  ld.param.u64 %gate, [gate];
  ld.param.u64 %most, [most_ns];
  mov.u64 %start, %globaltimer;
look:
  ld.volatile.u32 %seen, [%gate];
  setp.ne.u32 %open, %seen, 0;
  @%open ret;
  nanosleep.u32 1000;
  mov.u64 %now, %globaltimer;
  sub.u64 %now, %now, %start;
  setp.lt.u64 %again, %now, %most;
  @%again bra look;
  ret;
}
`

const GATES = 16 * 1024
/** A gate that a failed test leaves closed opens after this time. */
const MOST_HOLD_NS = 5e9
const DEVICE_MAP = 2
const ONE_THREAD = { grid: [1, 1, 1], block: [1, 1, 1], sharedBytes: 0 } as const

export class TestGpu implements Disposable {
  readonly driver: NativeDriver
  readonly context: Context
  readonly clocks: Clocks
  readonly defaultStream: Stream
  /** the first one stays closed */
  private readonly gates = new Uint32Array(GATES)
  private readonly gatesAddress: number
  private nextGate = 1
  private readonly module: number
  private readonly kernel: number

  constructor(ordinal = 0) {
    const library = openLibrary()
    this.driver = new NativeDriver(library)
    this.driver.cuInit()
    this.context = Context.open(this.driver, ordinal)
    this.clocks = new Clocks(this.context)
    this.defaultStream = new Stream(this.clocks, 0, false)
    this.gatesAddress = library.addressOf(this.gates)
    this.driver.cuMemHostRegister(this.gates, DEVICE_MAP)
    this.module = this.driver.cuModuleLoadData(WAIT_FOR_GATE)
    this.kernel = this.driver.cuModuleGetFunction(this.module, 'wait_for_gate')
    this.warmUp()
  }

  createStream(): Stream {
    return new Stream(this.clocks, this.context.activate().cuStreamCreate(CU_STREAM_NON_BLOCKING), true)
  }

  /** Keeps work that is submitted to `stream` from now on from running until the returned function is called. */
  hold(stream: Stream): () => void {
    const gate = this.nextGate++
    if (gate === GATES) throw new RangeError(`a test has ${GATES - 1} gates`)
    this.launch(stream, gate, MOST_HOLD_NS)
    return () => Atomics.store(this.gates, gate, 1)
  }

  /** Keeps `stream` busy for that time. */
  spin(stream: Stream, milliseconds: number): void {
    this.launch(stream, 0, Math.round(milliseconds * 1e6))
  }

  close(): void {
    const driver = this.context.activate()
    this.gates.fill(1)
    driver.cuCtxSynchronize()
    driver.cuModuleUnload(this.module)
    driver.cuMemHostUnregister(this.gates)
    this.clocks.close()
    this.context.release()
  }

  [Symbol.dispose](): void {
    this.close()
  }

  /**
   * The first use of code loads it, and loading can wait for all running work. So it happens before a test holds work
   * back.
   */
  private warmUp(): void {
    const driver = this.context.activate()
    const ptr = driver.cuMemAlloc(256)
    driver.cuMemsetD8Async(ptr, 0, 128, this.defaultStream.handle)
    driver.cuMemsetD32Async(ptr, 0, 32, this.defaultStream.handle)
    driver.cuMemcpyDtoDAsync(ptr + 128, ptr, 128, this.defaultStream.handle)
    this.spin(this.defaultStream, 0)
    driver.cuMemFree(ptr)
  }

  private launch(stream: Stream, gate: number, mostNs: number): void {
    const bytes = new Uint8Array(16)
    const view = new DataView(bytes.buffer)
    view.setBigUint64(0, BigInt(this.gatesAddress + 4 * gate), true)
    view.setBigUint64(8, BigInt(mostNs), true)
    this.context.activate().cuLaunchKernel(this.kernel, ONE_THREAD, stream.handle, { bytes, offsets: [0, 8] })
  }
}
