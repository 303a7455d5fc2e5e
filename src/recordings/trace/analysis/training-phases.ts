// The work of a training program at each allocation: setting up its model, a forward or backward pass, or a step of its
// optimizer. Call stacks and the annotations of the optimizer tell it; without call stacks the times of the frees do.

import { stackValues } from '../frames/stack-values.js'
import { Action, type Frame, type Trace } from '../trace.js'

/** The work of a program at a moment. */
export const Phase = {
  /** no call stack tells it */
  unknown: 0,
  /** making or loading a model */
  setup: 1,
  /** a forward pass, also one that is repeated during backward */
  forward: 2,
  /** a backward pass */
  backward: 3,
  /** a step of an optimizer */
  optimizer: 4,
  /** any of them: a library takes its work space */
  workSpace: 5,
} as const

/** The phases of a recording, by event. */
export interface TrainingPhases {
  /** by event: the `Phase` of an allocation; `unknown` for other events */
  readonly phase: Uint8Array
  /** the events at which steps of optimizers begin, in their order */
  readonly optimizerStarts: readonly number[]
  /** the events after the steps of optimizers, in their order */
  readonly optimizerEnds: readonly number[]
}

const OPTIMIZER_STEP = /^Optimizer\.step#/
/** PyTorch's optimizers, and those of installed packages. */
const OPTIMIZER_FILE = /(^|[\\/])torch[\\/]optim[\\/]|[\\/](site|dist)-packages[\\/].*[\\/]optim(izers?)?[\\/]/
const BACKWARD_FILE = /(^|[\\/])torch[\\/](autograd[\\/](__init__|graph)|_tensor)\.py$/
const BACKWARD_CALL = /^(backward|grad|_engine_run_backward|_make_grads)$/
/** Autograd's operators in C++; `backward` itself is the static method of a function that a program defines. */
const BACKWARD_OPERATOR = /Backward\d*::apply\b|AccumulateGrad::apply\b|Engine::evaluate_function\b/
const WORK_SPACE_CALL = /\b(setWorkspaceForHandle|getCUDABlasLtWorkspace)\b/
/** Functions that load the weights of a model, or make them: they run once, and the weights stay. */
const LOADS =
  /^(_apply|convert|from_pretrained|load_model|load_state_dict|_load_from_state_dict|load_weights|reset_parameters)$/
/** Files of PyTorch's modules, and of installed packages: a program gives common names to functions of its own, too. */
const OF_LIBRARIES = /(^|[\\/])torch[\\/]nn[\\/]|[\\/](site|dist)-packages[\\/]/
const INIT_FILE = /(^|[\\/])torch[\\/]nn[\\/]init\.py$/
/** One number, of at most 64 bits. */
const SCALAR_BYTES = 8
/** An optimizer may be given both passes as a function, which it calls within its step. */
const FORWARD_CALL = /^(forward|_call_impl|_wrapped_call_impl|closure|training_step)$/

/** The phases of a recording; null if neither call stacks nor annotations tell any. */
export function trainingPhasesOf(trace: Trace): TrainingPhases | null {
  const steps = trace.annotations.filter(({ name }) => OPTIMIZER_STEP.test(name))
  const ofStack = stackValues(trace.stacks, phaseOfFrame)
  const phase = new Uint8Array(trace.events)
  let told = steps.length > 0
  let trains = steps.length > 0
  for (let event = 0; event < trace.events; event++) {
    if (trace.action[event] !== Action.alloc) continue
    phase[event] = ofStack[trace.stack[event]]
    told ||= phase[event] !== Phase.unknown
    trains ||= phase[event] === Phase.backward || phase[event] === Phase.optimizer
  }
  if (!told) return null
  const [optimizerStarts, optimizerEnds] = steps.length > 0 ? annotated(steps) : byStack(phase)
  const phases = { phase, optimizerStarts, optimizerEnds }
  if (!trains) return phases
  const hasStacks = trace.stacks.count > 1
  if (hasStacks) fillAutograd(trace, phase)
  if (steps.length > 0) {
    for (const [step, start] of optimizerStarts.entries()) fillStep(trace, phase, start, optimizerEnds[step])
  }
  if (!hasStacks) splitByLives(trace, phases)
  return phases
}

/**
 * The annotation of a step tells that an optimizer allocates, where no call stack tells another phase: its file may lie
 * anywhere. A step with a backward pass calls the program, whose forward pass may lie anywhere, too.
 */
function fillStep(trace: Trace, phase: Uint8Array, from: number, end: number): void {
  if (phase.subarray(from, end).includes(Phase.backward)) return
  for (let event = from; event < end; event++) {
    if (isAlloc(trace, event) && phase[event] === Phase.unknown) phase[event] = Phase.optimizer
  }
}

/** The innermost frame that tells a phase decides. */
function phaseOfFrame(frame: Frame): number {
  const { filename, name } = frame
  if (OPTIMIZER_FILE.test(filename)) return Phase.optimizer
  if (WORK_SPACE_CALL.test(name)) return Phase.workSpace
  if (BACKWARD_OPERATOR.test(name)) return Phase.backward
  if (BACKWARD_FILE.test(filename) && BACKWARD_CALL.test(name)) return Phase.backward
  if (name === 'backward') return Phase.backward
  if (name === '__init__' || isLoading(frame)) return Phase.setup
  return FORWARD_CALL.test(name) ? Phase.forward : Phase.unknown
}

/** Whether a frame loads or makes the weights of a model. */
export function isLoading({ filename, name }: Frame): boolean {
  return (LOADS.test(name) && OF_LIBRARIES.test(filename)) || INIT_FILE.test(filename)
}

/** Steps that overlap count as one, so that no event is in two of them. */
function annotated(steps: Trace['annotations']): [number[], number[]] {
  const starts: number[] = []
  const ends: number[] = []
  for (const { start, end } of steps) {
    if (start < (ends.at(-1) ?? 0)) ends[ends.length - 1] = Math.max(end, ends.at(-1)!)
    else {
      starts.push(start)
      ends.push(end)
    }
  }
  return [starts, ends]
}

/** Runs of allocations of an optimizer, each until the next other allocation, for a recording without annotations. */
function byStack(phase: Uint8Array): [number[], number[]] {
  const starts: number[] = []
  const ends: number[] = []
  for (let event = 0; event < phase.length; event++) {
    if (phase[event] === Phase.unknown || phase[event] === Phase.workSpace) continue
    const isWithin = starts.length > ends.length
    const isOptimizer = phase[event] === Phase.optimizer
    if (isOptimizer && !isWithin) starts.push(event)
    else if (!isOptimizer && isWithin) ends.push(event)
  }
  if (starts.length > ends.length) ends.push(phase.length)
  return [starts, ends]
}

/** Autograd's thread runs no Python, so in a recording of Python frames its allocations have no call stack. */
function fillAutograd(trace: Trace, phase: Uint8Array): void {
  for (let event = 0; event < trace.events; event++) {
    if (isAlloc(trace, event) && trace.stack[event] === 0 && phase[event] === Phase.unknown) {
      phase[event] = Phase.backward
    }
  }
}

/**
 * Without call stacks: backward begins where most memory is held that does not outlast the pass, because each of its
 * operators frees what the forward pass had kept for it. The latest scalar before that is the loss, or its gradient.
 */
function splitByLives(trace: Trace, { phase, optimizerStarts, optimizerEnds }: TrainingPhases): void {
  const { blocks, block, action } = trace
  optimizerStarts.forEach((end, step) => {
    const from = step === 0 ? 0 : optimizerEnds[step - 1]
    let [held, most, scalar, boundary] = [0, 0, -1, from]
    for (let event = from; event < end; event++) {
      const number = block[event]
      if (number < 0 || blocks.allocatedAt[number] < from || blocks.freeRequestedAt[number] >= end) continue
      if (action[event] === Action.alloc && blocks.bytes[number] <= SCALAR_BYTES) scalar = event
      if (action[event] === Action.alloc) held += blocks.bytes[number]
      else if (action[event] === Action.freeRequested) held -= blocks.bytes[number]
      if (held > most) [most, boundary] = [held, scalar < 0 ? event + 1 : scalar]
    }
    for (let event = boundary; event < end; event++) {
      if (isAlloc(trace, event)) phase[event] = Phase.backward
    }
  })
}

function isAlloc({ action }: Trace, event: number): boolean {
  return action[event] === Action.alloc
}
