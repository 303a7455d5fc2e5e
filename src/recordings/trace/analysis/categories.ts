// The purpose of each block of a PyTorch program. A recording of the profiler has it. For others it is inferred from
// the phase in which a block was allocated, and from its lifetime; docs/recordings.md has the rules.

import { firstIndex } from '../../../core/base/binary-search.js'
import { KiB, MiB } from '../../../core/base/bytes.js'
import { CallSites } from '../frames/call-sites.js'
import { addTo } from '../groups.js'
import { Action, BEFORE, NEVER, type Trace } from '../trace.js'
import { liveAfter } from './curves.js'
import { Phase, type TrainingPhases, trainingPhasesOf } from './training-phases.js'

/** The purposes of blocks. */
export const CATEGORIES = ['parameters', 'gradients', 'optimizer state', 'activations', 'temporaries', 'other'] as const

/** One of `CATEGORIES`. */
export type Category = (typeof CATEGORIES)[number]

/** The memory of one category at one moment. */
export interface CategoryShare {
  readonly category: Category
  readonly bytes: number
  readonly blocks: number
  /** the part without a call stack, if others have one */
  readonly withoutStackBytes: number
  /** most bytes of the category at once, at any moment of the recording */
  readonly mostBytes: number
}

/** The memory at one moment, by category. */
export interface CategoriesAt {
  /** whether a call stack of the recording shows torch.utils.checkpoint */
  readonly isCheckpointed: boolean
  /** whether the recording says it; otherwise it is inferred */
  readonly recorded: boolean
  readonly shares: readonly CategoryShare[]
}

/** The category of each block of a recording. */
export interface Categories {
  /** by block: an index into `CATEGORIES` */
  readonly ofBlock: Uint8Array
  /** whether the recording says it; otherwise it is inferred */
  readonly recorded: boolean
}

const [PARAMETERS, GRADIENTS, OPTIMIZER, ACTIVATIONS, TEMPORARIES, OTHER] = CATEGORIES.keys()

/**
 * The work space that cuBLAS takes for a thread and a stream, by PyTorch's defaults, and keeps: on Hopper, on other
 * devices, and for cuBLASLt. Without a call stack only its size tells it from a parameter.
 */
const WORK_SPACES: ReadonlySet<number> = new Set([4096 * 8 * KiB, (4096 * 2 + 16 * 8) * KiB, MiB])

/** The files of torch.utils.checkpoint. */
const CHECKPOINT = /torch[\\/]utils[\\/]checkpoint\.py$/

/** The categories of PyTorch's profiler. */
const RECORDED: ReadonlyMap<string, number> = new Map([
  ['parameter', PARAMETERS],
  ['gradient', GRADIENTS],
  ['optimizer_state', OPTIMIZER],
  ['activation', ACTIVATIONS],
  ['input', ACTIVATIONS],
  ['temporary', TEMPORARIES],
  ['autograd_detail', TEMPORARIES],
])

/** The category of each block of a recording; null if it is unknown. */
export function categoriesOf(trace: Trace): Categories | null {
  if (trace.recorder !== 'PyTorch') return null
  if (trace.categories.some(name => RECORDED.has(name))) return { ofBlock: recordedCategories(trace), recorded: true }
  const phases = trainingPhasesOf(trace)
  if (phases === null) return null
  const ofBlock = new Inference(trace, phases).categories()
  return ofBlock.includes(PARAMETERS) ? { ofBlock, recorded: false } : null
}

/** The memory held after an event, by category; null if nothing tells the categories, or nothing is held. */
export function categoriesAfter(trace: Trace, event: number): CategoriesAt | null {
  const categories = categoriesOf(trace)
  if (categories === null) return null
  const most = mostBytes(trace, categories)
  const shares = CATEGORIES.map((category, i) => ({
    category,
    bytes: 0,
    blocks: 0,
    withoutStackBytes: 0,
    mostBytes: most[i],
  }))
  const hasStacks = trace.stacks.count > 1
  for (const number of liveAfter(trace, event)) {
    const share = shares[categories.ofBlock[number]]
    share.bytes += trace.blocks.bytes[number]
    share.blocks++
    if (hasStacks && number >= trace.blocks.initial && trace.blocks.stack[number] === 0) {
      share.withoutStackBytes += trace.blocks.bytes[number]
    }
  }
  // That no gradients are held is worth saying.
  const held = shares.filter((each, i) => each.bytes > 0 || i <= ACTIVATIONS)
  return shares.every(({ bytes }) => bytes === 0)
    ? null
    : { isCheckpointed: isCheckpointed(trace), recorded: categories.recorded, shares: held }
}

/** By category: most bytes at once. */
function mostBytes({ blocks, action, block, events }: Trace, { ofBlock }: Categories): Float64Array {
  const bytes = new Float64Array(CATEGORIES.length)
  for (let number = 0; number < blocks.initial; number++) {
    if (blocks.freeRequestedAt[number] !== BEFORE) bytes[ofBlock[number]] += blocks.bytes[number]
  }
  const most = bytes.slice()
  for (let event = 0; event < events; event++) {
    const isAllocation = action[event] === Action.alloc
    if (!isAllocation && action[event] !== Action.freeRequested) continue
    const category = ofBlock[block[event]]
    bytes[category] += isAllocation ? blocks.bytes[block[event]] : -blocks.bytes[block[event]]
    if (bytes[category] > most[category]) most[category] = bytes[category]
  }
  return most
}

/** The activations held after an event, which checkpointing could save; null if there are none, or nothing tells. */
export function activationsAfter(trace: Trace, event: number) {
  const categories = categoriesAfter(trace, event)
  const found = categories?.shares.find(({ category }) => category === 'activations')
  if (!categories || !found || found.bytes === 0) return null
  return { bytes: found.bytes, isCheckpointed: categories.isCheckpointed }
}

function isCheckpointed({ stacks }: Trace): boolean {
  return stacks.frames.some(({ filename }) => CHECKPOINT.test(filename))
}

/**
 * The profiler notes a change of a tensor as a free and an allocation in its place. So a block from before the
 * recording has the category of the block that replaced it.
 */
function recordedCategories({ blocks, categories, events, action, block }: Trace): Uint8Array {
  const ofName = categories.map(name => RECORDED.get(name) ?? OTHER)
  const ofBlock = Uint8Array.from(blocks.category, name => ofName[name])
  for (let number = 0; number < blocks.initial; number++) {
    const after = blocks.freeCompletedAt[number] + 1
    if (after >= events || action[after] !== Action.alloc) continue
    const next = block[after]
    if (blocks.address[next] === blocks.address[number]) ofBlock[number] = ofBlock[next]
  }
  return ofBlock
}

class Inference {
  private readonly ofBlock: Uint8Array
  private readonly backwardAfter: Int32Array
  private readonly firstBackward: number
  private readonly firstForward: number
  /** how many steps of optimizers begin */
  private readonly steps: number
  private readonly hasStacks: boolean
  /** the last request of a run that failed by it; else NEVER */
  private readonly failedAt: number
  /** by block: when the program frees it; a run that failed did not come to that */
  private readonly until: Int32Array
  private readonly sites: CallSites
  /** by size: how many parameters there are */
  private readonly parameterSizes = new Map<number, number>()
  /** by size: how many gradients the step has in which the recording ends */
  private readonly unfinished = new Map<number, number>()
  /** blocks without a phase that may be parameters or work space */
  private readonly doubtful: number[] = []

  constructor(
    private readonly trace: Trace,
    private readonly phases: TrainingPhases,
  ) {
    this.ofBlock = new Uint8Array(trace.blocks.count).fill(OTHER)
    this.backwardAfter = nextOf(phases.phase, Phase.backward)
    this.firstBackward = this.backwardAfter[0]
    this.firstForward = nextOf(phases.phase, Phase.forward)[0]
    this.steps = phases.optimizerStarts.length
    this.hasStacks = trace.stacks.count > 1
    this.sites = CallSites.of(trace.stacks)
    this.failedAt = lastFailure(trace)
    this.until = trace.blocks.freeRequestedAt.map(event => (event > this.failedAt ? NEVER : event))
  }

  categories(): Uint8Array {
    const { blocks } = this.trace
    this.findParameters()
    for (let number = blocks.initial; number < blocks.count; number++) {
      if (this.ofBlock[number] !== PARAMETERS) this.ofBlock[number] = this.categoryOf(number)
    }
    this.divideByGradients()
    return this.ofBlock
  }

  /** Parameters are there before the first pass begins to use them, and stay. */
  private findParameters(): void {
    const { blocks } = this.trace
    const { phase } = this.phases
    const before = this.firstBackward === NEVER && this.steps === 0 ? this.firstForward : this.firstBackward
    const growing = this.growingSites()
    for (let number = 0; number < blocks.count; number++) {
      const from = blocks.allocatedAt[number]
      if (from >= before) break
      if (!this.staysToTheEnd(number)) continue
      const during = from === BEFORE ? Phase.unknown : phase[from]
      const isSetup = during === Phase.setup
      if (!isSetup && from !== BEFORE && (during !== Phase.unknown || this.steps < 2)) continue
      if (!isSetup && growing.has(this.sites.siteOf(blocks.stack[number]).site)) continue
      this.ofBlock[number] = PARAMETERS
      if (!isSetup && WORK_SPACES.has(blocks.bytes[number])) this.doubtful.push(number)
      else this.parameterSizes.set(blocks.bytes[number], (this.parameterSizes.get(blocks.bytes[number]) ?? 0) + 1)
    }
  }

  /** The call sites that allocate blocks in later steps that stay, too: a model is made once. */
  private growingSites(): Set<string | null> {
    const { blocks } = this.trace
    const found = new Set<string | null>()
    for (let number = blocks.initial; number < blocks.count; number++) {
      const from = blocks.allocatedAt[number]
      const isLater = from > this.phases.optimizerEnds[0] && this.stepsAfter(from) > 1
      if (isLater && this.staysToTheEnd(number)) found.add(this.sites.siteOf(blocks.stack[number]).site)
    }
    found.delete(null)
    return found
  }

  private categoryOf(number: number): number {
    const { phase } = this.phases
    const from = this.trace.blocks.allocatedAt[number]
    const until = this.until[number]
    switch (phase[from]) {
      case Phase.workSpace:
        return OTHER
      case Phase.optimizer:
        return this.isState(from, until) ? OPTIMIZER : TEMPORARIES
      case Phase.backward:
        if (this.isGradient(number, from, until)) return GRADIENTS
        return until === NEVER && this.stepsAfter(from) > 0 ? OTHER : TEMPORARIES
      default:
        return this.categoryInForward(number, from, until)
    }
  }

  /** An activation is still there when the next backward pass begins, or when the recording ends before one. */
  private categoryInForward(number: number, from: number, until: number): number {
    const { steps, hasStacks } = this
    const later = this.stepsAfter(from)
    const isFull = this.failedAt < NEVER
    if (this.firstBackward === NEVER && steps === 0) {
      return until < NEVER ? TEMPORARIES : isFull && this.phases.phase[from] === Phase.forward ? ACTIVATIONS : OTHER
    }
    if (!hasStacks && later === 0) return OTHER
    if (this.staysToTheEnd(number)) {
      if (later > 1 || (later === 1 && WORK_SPACES.has(this.trace.blocks.bytes[number]))) return OTHER
    }
    return until > this.backwardAfter[from] || until === NEVER ? ACTIVATIONS : TEMPORARIES
  }

  /** State outlasts the step that makes it. A recording that ends within a later step has the state already. */
  private isState(from: number, until: number): boolean {
    const { optimizerEnds } = this.phases
    const step = firstAbove(optimizerEnds, from)
    const end = optimizerEnds[step] ?? this.trace.events
    return until >= end && (until < NEVER || step === 0 || end < this.trace.events)
  }

  /**
   * A gradient lives until a step of the optimizer. One that stays has the size of a parameter, or is from the first
   * step: parts of a parameter may have gradients of their own, as those of an LSTM. Where the recording ends before
   * the step, as many are gradients as there are parameters of the size, the first ones.
   */
  private isGradient(number: number, from: number, until: number): boolean {
    const { optimizerStarts } = this.phases
    const step = firstAbove(optimizerStarts, from)
    const bytes = this.trace.blocks.bytes[number]
    const parameters = this.parameterSizes.get(bytes) ?? 0
    if (step === optimizerStarts.length) {
      if (until < NEVER || parameters <= (this.unfinished.get(bytes) ?? 0)) return false
      this.unfinished.set(bytes, (this.unfinished.get(bytes) ?? 0) + 1)
      return true
    }
    if (until < optimizerStarts[step]) return false
    return parameters > 0 || until < NEVER || (step === 0 && !WORK_SPACES.has(bytes))
  }

  private staysToTheEnd(number: number): boolean {
    return this.until[number] > (this.phases.optimizerStarts.at(-1) ?? this.trace.events)
  }

  private stepsAfter(event: number): number {
    const { optimizerEnds } = this.phases
    return optimizerEnds.length - firstAbove(optimizerEnds, event)
  }

  /**
   * Where no phase tells, gradients do. Of blocks from before the recording that stay, as many of a size are parameters
   * as have gradients in one step, and the optimizer's state takes the same number once or several times.
   */
  private divideByGradients(): void {
    const { blocks } = this.trace
    const perStep = this.gradientsPerStep()
    const held = new Map<number, number[]>()
    for (let number = 0; number < blocks.initial; number++) {
      if (this.ofBlock[number] === PARAMETERS) addTo(held, blocks.bytes[number], number)
      else if (this.until[number] < this.firstBackward) this.ofBlock[number] = TEMPORARIES
    }
    for (const [size, numbers] of held) {
      const gradients = perStep.get(size) ?? 0
      const times = gradients === 0 ? 0 : Math.floor(numbers.length / gradients)
      for (const number of numbers.slice(gradients, gradients * times)) this.ofBlock[number] = OPTIMIZER
    }
    const kept = new Map<number, number[]>()
    for (const number of this.doubtful) {
      if (this.ofBlock[number] !== PARAMETERS) continue
      const size = blocks.bytes[number]
      if ((kept.get(size)?.length ?? 0) < (perStep.get(size) ?? 0)) addTo(kept, size, number)
      else this.ofBlock[number] = OTHER
    }
  }

  /** By size: how many gradients the step with most of them has. */
  private gradientsPerStep(): Map<number, number> {
    const { blocks } = this.trace
    const most = new Map<number, number>()
    let counts = new Map<number, number>()
    let step = -1
    for (let number = blocks.initial; number < blocks.count; number++) {
      if (this.ofBlock[number] !== GRADIENTS) continue
      const at = firstAbove(this.phases.optimizerStarts, blocks.allocatedAt[number])
      if (at !== step) [counts, step] = [new Map(), at]
      const size = blocks.bytes[number]
      const count = (counts.get(size) ?? 0) + 1
      counts.set(size, count)
      if (count > (most.get(size) ?? 0)) most.set(size, count)
    }
    return most
  }
}

/** The failed request that no allocation follows; else NEVER. */
function lastFailure({ action }: Trace): number {
  const failed = action.lastIndexOf(Action.outOfMemory)
  return failed < 0 || action.indexOf(Action.alloc, failed) >= 0 ? NEVER : failed
}

/** By event: the first event after it of a phase, or NEVER; entry 0 may be event 0 itself. */
function nextOf(phase: Uint8Array, wanted: number): Int32Array {
  const next = new Int32Array(phase.length + 1).fill(NEVER)
  let found = NEVER
  for (let event = phase.length - 1; event >= 0; event--) {
    next[event] = found
    if (phase[event] === wanted) found = event
  }
  if (phase[0] === wanted) next[0] = 0
  return next
}

/** The index of the first of these rising numbers that is above `value`. */
function firstAbove(numbers: readonly number[], value: number): number {
  return firstIndex(numbers.length, index => numbers[index] > value)
}
