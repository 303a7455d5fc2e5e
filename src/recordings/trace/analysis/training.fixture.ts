// A small training as PyTorch records it, with known categories and known growth with its batch.

import { MiB } from '../../../core/base/bytes.js'
import { Action, type Trace } from '../trace.js'
import { TraceBuilder } from '../trace-builder.js'
import type { Category } from './categories.js'

type Line = readonly [filename: string, line: number, name: string]
const TORCH = '/env/lib/python3.12/site-packages/torch/'
const TRAIN: Line = ['/home/me/train.py', 12, 'main']
const MODEL: Line = ['/home/me/model.py', 88, 'forward']
const CALL: Line = [`${TORCH}nn/modules/module.py`, 1790, '_call_impl']
const CONVERT: Line = [`${TORCH}nn/modules/module.py`, 1370, 'convert']
const LINEAR: Line = [`${TORCH}nn/modules/linear.py`, 134, 'forward']
const ADAM: Line = [`${TORCH}optim/adam.py`, 178, '_init_group']
const OWN: Line = ['/home/me/lion.py', 44, 'step']
const STEP: Line = [`${TORCH}optim/optimizer.py`, 533, 'wrapper']
const LOG: Line = ['/home/me/train.py', 66, 'log_loss']
const CLOSURE: Line = ['/home/me/train.py', 30, 'closure']
const BACKWARD: Line = [`${TORCH}autograd/__init__.py`, 231, '_make_grads']
const NATIVE = '??'
const ENGINE: Line = [
  NATIVE,
  0,
  'torch::autograd::Engine::evaluate_function(std::shared_ptr<torch::autograd::GraphTask>&, torch::autograd::Node*, ' +
    'torch::autograd::InputBuffer&, std::shared_ptr<torch::autograd::ReadyQueue> const&)',
]
const WORK_SPACE: Line = [NATIVE, 0, 'at::cuda::setWorkspaceForHandle(cublasContext*&)']
const MATMUL: Line = [NATIVE, 0, 'torch::autograd::generated::MmBackward0::apply(std::vector<Variable>&&)']

export interface TrainingOptions {
  readonly steps?: number
  readonly batch?: number
  /** the frames that are recorded */
  readonly stacks?: 'python' | 'all' | 'none'
  /** whether gradients are kept from step to step */
  readonly keepsGradients?: boolean
  /** whether a step of the optimizer calls both passes */
  readonly closure?: boolean
  /** whether the optimizer is a file of the program */
  readonly ownOptimizer?: boolean
  /** ends within backward of the step after these */
  readonly endsInBackward?: boolean
  /** runs out of memory at the end of the first forward pass; there are no steps then */
  readonly failsInForward?: boolean
  /** what the pass held is freed after the failure, as an exception does */
  readonly unwinds?: boolean
  /** cuBLAS takes work space in the first forward pass, and keeps it */
  readonly workSpaceBytes?: number
  readonly annotations?: boolean
  /** bytes of the activations of a layer for a batch; default 2 MiB each */
  readonly activationBytes?: (batch: number) => number
  /** allocates something more in this step */
  readonly extraInStep?: number
  /** keeps a block of each step, allocated before its passes */
  readonly leaks?: boolean
}

const PARAMETERS = [8, 3, 1].map(size => size * MiB)

/** The trace, and the category of each of its blocks. */
export class Training {
  private readonly builder = new TraceBuilder()
  private readonly marks: { isStart: boolean; name: string; timeUs: number }[] = []
  readonly categories: Category[] = []
  private now = 0
  private addresses = 0

  constructor(private readonly options: TrainingOptions = {}) {}

  trace(): Trace {
    const { steps = 3, endsInBackward = false, failsInForward = false, unwinds = false } = this.options
    const parameters = PARAMETERS.map(bytes => ({ bytes, at: this.take(bytes, [CONVERT, TRAIN], 'parameters') }))
    const gradients: number[] = []
    for (let step = 0; step < steps; step++) this.step(step, parameters, gradients)
    if (endsInBackward) this.passes(steps, parameters, gradients, true)
    if (failsInForward) {
      const kept = this.forward(0)
      this.builder.add(Action.outOfMemory, 0, 64 * MiB, 0, this.now++)
      if (unwinds) for (const activation of kept) this.free(activation)
    }
    return this.builder.build({ file: 'training.pickle', settings: '', annotations: this.marks })
  }

  private step(step: number, parameters: readonly { bytes: number }[], gradients: number[]): void {
    const { keepsGradients = false, closure = false, ownOptimizer = false, leaks = false } = this.options
    const optimizer = [ownOptimizer ? OWN : ADAM, TRAIN]
    if (leaks) this.take(9 * MiB, [LOG], 'other')
    const passes = () => this.passes(step, parameters, gradients, false)
    const endGradients = () => {
      if (!keepsGradients) for (const gradient of gradients.splice(0)) this.free(gradient)
    }
    if (!closure) passes()
    this.mark('Optimizer.step#Adam.step', () => {
      if (closure) {
        endGradients()
        passes()
      }
      const temporary = this.take(MiB, optimizer, 'temporaries')
      if (step === 0) for (const { bytes } of parameters) this.take(2 * bytes, optimizer, 'optimizer state')
      this.free(temporary)
    })
    if (!closure) endGradients()
  }

  /** The frames around a pass. */
  private get caller(): Line[] {
    return this.options.closure ? [CLOSURE, STEP, TRAIN] : [TRAIN]
  }

  /** A forward and a backward pass, or one that ends with its first gradient. */
  private passes(step: number, parameters: readonly { bytes: number }[], gradients: number[], ends: boolean): void {
    const { batch = 4 } = this.options
    const input = this.take(batch * MiB, this.caller, 'activations')
    const kept = this.forward(step)
    const first = gradients.length === 0
    const ones = this.take(4, [BACKWARD, ...this.caller], 'temporaries')
    for (const { bytes } of parameters.toReversed()) {
      const temporary = this.take(batch * MiB, this.backward(), 'temporaries')
      if (first) gradients.push(this.take(bytes, this.backward(), 'gradients'))
      else this.free(this.take(bytes, this.backward(), 'temporaries'))
      if (ends) return
      this.free(kept.pop()!)
      this.free(temporary)
    }
    this.free(ones)
    this.free(input)
  }

  /** Returns the activations. */
  private forward(step: number): number[] {
    const { batch = 4, activationBytes = count => 2 * count * MiB, extraInStep, workSpaceBytes } = this.options
    const lines = [LINEAR, CALL, MODEL, ...this.caller]
    if (step === extraInStep) this.free(this.take(7 * MiB, [CALL, MODEL, ...this.caller], 'temporaries'))
    if (step === 0 && workSpaceBytes !== undefined) this.take(workSpaceBytes, [WORK_SPACE, ...lines], 'other')
    return PARAMETERS.map(() => {
      const temporary = this.take(batch * MiB, lines, 'temporaries')
      const activation = this.take(activationBytes(batch), lines, 'activations')
      this.free(temporary)
      return activation
    })
  }

  /** Autograd's thread has no frames of Python. */
  private backward(): Line[] {
    return this.options.stacks === 'all' ? [MATMUL, ENGINE] : []
  }

  private take(bytes: number, lines: readonly Line[], category: Category): number {
    const { stacks } = this.builder
    const isRecorded = this.options.stacks !== 'none'
    const recorded = this.options.stacks === 'all' ? lines : lines.filter(([file]) => file !== NATIVE)
    const stack = isRecorded ? stacks.number(recorded.map(line => stacks.entry(...line))) : 0
    const address = 2 ** 40 + this.addresses++ * 2 ** 28
    this.builder.add(Action.alloc, address, bytes, 0, this.now++, stack)
    this.categories.push(category)
    return address
  }

  private free(address: number): void {
    this.builder.add(Action.freeRequested, address, 0, 0, this.now++)
    this.builder.add(Action.freeCompleted, address, 0, 0, this.now++)
  }

  private mark(name: string, work: () => void): void {
    const { annotations = true } = this.options
    if (annotations) this.marks.push({ isStart: true, name, timeUs: this.now - 0.5 })
    work()
    if (annotations) this.marks.push({ isStart: false, name, timeUs: this.now - 0.5 })
  }
}
