// The allocators whose calls are recorded, as sentences name them, and what their recordings can have.

import type { Trace } from '../trace/trace.js'

export interface Recorder {
  /** the allocator within a sentence */
  readonly allocator: string
  /** the sentence that names it; '' for PyTorch, which the sentence on its settings names */
  readonly recordedFrom: string
  /** how a program sets a limit of its own */
  readonly limit: string
  /** the way to record call stacks */
  readonly stacks: string
}

export const RECORDERS: Readonly<Record<Trace['recorder'], Recorder>> = {
  PyTorch: {
    allocator: 'PyTorch',
    recordedFrom: '',
    limit: 'set_per_process_memory_fraction',
    stacks:
      `torch.cuda.memory._record_memory_history(stacks='python') records them, without context=None; ` +
      'so does torch.profiler with with_stack=True',
  },
  'cuda-mempool': {
    allocator: 'the pool',
    recordedFrom: 'Recorded from a pool of cuda-mempool.',
    limit: 'maxPoolBytes',
    stacks: 'recorded(pool, { stacks: true }) records them',
  },
  RMM: {
    allocator: 'RMM',
    recordedFrom: 'Recorded from RMM.',
    limit: 'limiting_resource_adaptor',
    stacks: 'RMM logs none',
  },
  CUDA: {
    allocator: 'CUDA',
    recordedFrom: "Recorded from CUDA's own allocation calls.",
    limit: 'the pool',
    stacks: 'Nsight Systems exports none',
  },
}
