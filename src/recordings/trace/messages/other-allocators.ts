// Out-of-memory messages of allocators other than PyTorch's own, and tables of other tools. Most lack a part of the sum
// that decides: the request, the memory in use, or the free memory.

import { formatBytes } from '../../../core/base/bytes.js'
import type { OutOfMemoryMessage } from './out-of-memory-message.js'
import { exactSize, NUMBER, plus, type RoundedSize, roundedSize, SIZE } from './rounded-size.js'

const NONE: OutOfMemoryMessage = {
  allocator: '',
  backend: 'CUDA',
  device: null,
  asked: null,
  total: null,
  free: null,
  inUse: null,
  idle: null,
  waiting: null,
  privatePools: null,
  allowed: null,
  processes: [],
  segment: null,
  isRejected: false,
  isCut: false,
}

/** An allocator whose messages are recognised in squeezed text. */
interface OtherAllocator {
  readonly name: string
  readonly pattern: RegExp
  /** the parts of the sum that a message has */
  readonly sizes?: (found: RegExpExecArray, rest: string) => Partial<OutOfMemoryMessage>
  /** a remedy, or a note; PyTorch's settings do not apply */
  readonly remedy: string
}

const sizeAfter = (text: string, label: string, end = ''): RoundedSize | null => {
  const found = new RegExp(`${label}(?<!\\d)${SIZE}${end}`, 'i').exec(text)
  return found === null ? null : roundedSize(found[1], found[2])
}
const count = (text: string | undefined) => (text === undefined ? null : exactSize(Number(text.replaceAll(',', ''))))
const pattern = (source: string) => new RegExp(source.replaceAll('SIZE', `(?<!\\d)${SIZE}`), 'i')

/** The limit and the bytes in use of TensorFlow's and JAX's arena, if a log has its statistics. */
function arenaSizes(rest: string): Partial<OutOfMemoryMessage> {
  const found = /limit:(\d{1,16})inuse:(\d{1,16})/i.exec(rest)
  return found === null ? {} : { allowed: count(found[1]), inUse: count(found[2]) }
}

const JAX_REMEDY = 'XLA_PYTHON_CLIENT_MEM_FRACTION and XLA_PYTHON_CLIENT_ALLOCATOR are its settings'
const RECORD_REMEDY =
  'the whole message may, and a recording of a run in PyTorch does: torch.cuda.memory._record_memory_history(), ' +
  "later _dump_snapshot('run.pickle')"

/** The most specific ones first: their logs have messages of the driver, too. */
const ALLOCATORS: readonly OtherAllocator[] = [
  {
    name: "PyTorch's backend cudaMallocAsync",
    // Some programs print its first words only.
    pattern: /(?:outofmemoryerror:allocationondevice|allocationondevice(?=\d{0,3}wouldexceed))(\d{0,3})/i,
    sizes: ([, device], rest) => ({
      device: device === '' ? null : Number(device),
      inUse: sizeAfter(rest, 'currentlyallocated:'),
      asked: sizeAfter(rest, 'requested:'),
      total: sizeAfter(rest, 'devicelimit:'),
      free: sizeAfter(rest, 'free\\(accordingtocuda\\):'),
      allowed: limitOf(sizeAfter(rest, 'memoryfraction\\):')),
    }),
    remedy: 'the idle memory of the driver is not in it; record with backend:native to see more',
  },
  {
    name: "PyTorch's backend for MPS",
    pattern: pattern('mpsbackendoutofmemory\\(mpsallocated:SIZE,otherallocations:SIZE,maxallowed:SIZE\\)'),
    sizes: ([, inUse, unit, other, otherUnit, most, mostUnit], rest) => ({
      backend: 'MPS',
      asked: sizeAfter(rest, 'triedtoallocate'),
      inUse: plus(roundedSize(inUse, unit), roundedSize(other, otherUnit)),
      allowed: roundedSize(most, mostUnit),
    }),
    remedy: 'the limit is that of PYTORCH_MPS_HIGH_WATERMARK_RATIO; recordings are of CUDA and HIP only',
  },
  {
    name: 'Paddle',
    pattern: pattern('cannotallocateSIZEmemoryongpu(\\d{1,3}),'),
    sizes: ([, asked, unit, device], rest) => ({
      device: Number(device),
      asked: roundedSize(asked, unit),
      free: sizeAfter(rest, 'availablememoryisonly'),
      inUse: sizeAfter(rest, '', 'memoryhasbeenallocated'),
    }),
    remedy: 'free what other programs hold, or take smaller batches',
  },
  {
    name: 'CuPy',
    pattern:
      /outofmemoryallocating([\d,]{1,24})bytes\(allocatedsofar:([\d,]{1,24})bytes(?:,limitsetto:([\d,]{1,24})bytes)?/i,
    sizes: ([, asked, inUse, limit]) => ({ asked: count(asked), inUse: count(inUse), allowed: count(limit) }),
    remedy: 'free_all_blocks() of its memory pool gives idle memory back',
  },
  {
    name: 'CuPy',
    pattern: /outofmemorytoallocate(\d{1,16})bytes\(total(\d{1,16})bytes(?:,limitsetto(\d{1,16})bytes)?/i,
    sizes: ([, asked, total, limit]) => ({
      asked: count(asked),
      inUse: exactSize(Number(total) - Number(asked)),
      allowed: count(limit),
    }),
    remedy: 'free_all_blocks() of its memory pool gives idle memory back',
  },
  {
    name: "ONNX Runtime's arena",
    pattern: /failedtoallocatememoryforrequestedbufferofsize(\d{1,20})/i,
    sizes: ([, asked]) => ({ asked: count(asked) }),
    remedy: 'gpu_mem_limit and arena_extend_strategy are its settings',
  },
  {
    name: "ONNX Runtime's arena",
    pattern: /availablememoryof(\d{1,20})issmallerthanrequestedbytesof(\d{1,20})/i,
    sizes: ([, available, asked]) => ({ asked: count(asked), inUse: exactSize(0), allowed: count(available) }),
    remedy: 'gpu_mem_limit is its limit',
  },
  {
    name: 'JAX (XLA)',
    pattern: /resource_?exhausted:outofmemory(?:whiletryingtoallocate|allocating)(\d{1,20})bytes/i,
    sizes: ([, asked], rest) => ({ asked: count(asked), ...arenaSizes(rest) }),
    remedy: JAX_REMEDY,
  },
  {
    name: 'JAX (XLA)',
    pattern: pattern('resource_?exhausted:failedtoallocaterequestforSIZE'),
    sizes: ([, asked, unit], rest) => ({ asked: roundedSize(asked, unit), ...arenaSizes(rest) }),
    remedy: JAX_REMEDY,
  },
  {
    name: 'JAX (XLA)',
    // Its units have one letter.
    pattern: pattern(
      `attemptingtoallocate(?<!\\d)${NUMBER}([KMGT])\\.thatwasnotpossible\\.thereare(?<!\\d)${NUMBER}([KMGT])free`,
    ),
    sizes: ([, asked, unit, free, freeUnit]) => ({
      asked: roundedSize(asked, unit),
      free: roundedSize(free, freeUnit),
      idle: exactSize(0),
    }),
    remedy: JAX_REMEDY,
  },
  {
    name: 'TensorFlow',
    pattern: /oomwhenallocatingtensorwithshape|ranoutofmemorytryingtoallocate/i,
    sizes: (_, rest) => ({ asked: sizeAfter(rest, 'tryingtoallocate'), ...arenaSizes(rest) }),
    remedy: 'tf.config.experimental.set_memory_growth is its setting',
  },
  {
    name: 'RMM',
    pattern: /bad_alloc:(?:out_of_memory:)?(?:cudaerror|rmmfailure)|maximumpoolsizeexceeded/i,
    sizes: (_, rest) => ({ asked: sizeAfter(rest, 'failedtoallocate') }),
    remedy: 'a log of its LoggingResourceAdaptor is read by all commands',
  },
  {
    name: 'llama.cpp (ggml)',
    pattern: pattern('allocatingSIZEondevice(\\d{1,3}):cudamallocfailed'),
    sizes: ([, asked, unit, device]) => ({ asked: roundedSize(asked, unit), device: Number(device) }),
    remedy: 'fewer layers on the GPU or a smaller context need less',
  },
  {
    name: 'vLLM',
    pattern: pattern(
      'freememoryondevice[^()]{0,10}\\((?<!\\d)(\\d{1,6}\\.\\d{1,4})/SIZE\\)onstartupislessthandesiredgpumemoryutilization\\([\\d.]{1,8},SIZE\\)',
    ),
    sizes: ([, free, total, unit, asked, askedUnit]) => ({
      free: roundedSize(free, unit),
      total: roundedSize(total, unit),
      asked: roundedSize(asked, askedUnit),
      inUse: exactSize(0),
      idle: exactSize(0),
    }),
    remedy: 'gpu_memory_utilization is its setting, and other programs hold the rest',
  },
  {
    name: 'vLLM',
    pattern: pattern('SIZEkvcacheisneeded,whichislargerthantheavailablekvcachememory\\(SIZE\\)'),
    sizes: ([, asked, unit, free, freeUnit]) => ({
      asked: roundedSize(asked, unit),
      free: roundedSize(free, freeUnit),
      idle: exactSize(0),
    }),
    remedy: 'gpu_memory_utilization raises what is available, and max_model_len lowers what is needed',
  },
  {
    name: 'vLLM',
    pattern: /noavailablememoryforthecacheblocks|largerthanthemaximumnumberoftokensthatcanbestoredinkvcache/i,
    remedy: 'gpu_memory_utilization raises what is available, and max_model_len lowers what is needed',
  },
  {
    name: 'TensorRT',
    pattern: /requestedamountofgpumemory\((\d{1,16})bytes\)couldnotbeallocated/i,
    sizes: ([, asked]) => ({ asked: count(asked) }),
    remedy: 'a smaller workspace or batch needs less',
  },
  {
    name: "PyTorch's CPU allocator",
    pattern: /defaultcpuallocator:(?:notenoughmemory|can.tallocatememory):youtriedtoallocate(\d{1,20})bytes/i,
    sizes: ([, asked]) => ({ backend: 'CPU', asked: count(asked) }),
    remedy: "it is the host's memory that ran out, not a GPU's",
  },
  {
    name: "Linux' out-of-memory killer",
    pattern: /outofmemory:kill(?:ed)?process|oom-kill:constraint/i,
    remedy: "it is the host's memory that ran out, not a GPU's",
  },
  {
    name: 'a library beside PyTorch (cuBLAS, cuDNN, NCCL)',
    pattern: /(?:cublas|cudnn|cusolver|cusparse)_status_alloc_failed|cudafailure(?:\d{1,3})?'?outofmemory/i,
    remedy:
      'it takes its memory beside PyTorch, whose idle memory it cannot use; torch.cuda.empty_cache() gives that back',
  },
  {
    name: "the driver's own allocation calls",
    pattern:
      /(?:cuda|hip|cumem)[a-z]{1,30}(?:\(\d{0,9}\))?:outofmemory|cudaruntimeerror\(2\):outofmemory|cuda_error_out_of_memory|cudaerrormemoryallocation|hiperroroutofmemory/i,
    remedy: "PyTorch's own message, if the log has one, says more",
  },
  { name: 'PyTorch', pattern: /(?:cuda|hip|xpu)outofmemory|outofmemoryerror/i, remedy: RECORD_REMEDY },
  { name: 'an unknown allocator', pattern: /outofmemory|out_of_memory/i, remedy: RECORD_REMEDY },
]

/** 2^64 - 1 bytes stand for no limit. */
function limitOf(size: RoundedSize | null): RoundedSize | null {
  return size === null || size.bytes >= 2 ** 63 ? null : size
}

/** A message of another allocator, and what to do about it. */
export interface OtherMessage {
  readonly message: OutOfMemoryMessage
  readonly remedy: string
}

/** Squeezed letters after the start of a message in which its sizes are, and the statistics of an arena before it. */
const LETTERS_AFTER = 4000
const LETTERS_BEFORE = 4000

/** The message of another allocator in a squeezed text; null for an unknown text. */
export function otherMessage(text: string): OtherMessage | null {
  for (const { name, pattern: start, sizes, remedy } of ALLOCATORS) {
    const found = start.exec(text)
    if (found === null) continue
    const after = text.slice(found.index, found.index + found[0].length + LETTERS_AFTER)
    const rest = after + text.slice(Math.max(0, found.index - LETTERS_BEFORE), found.index)
    return { message: { ...NONE, allocator: name, ...sizes?.(found, rest) }, remedy }
  }
  return null
}

/** A row of nvidia-smi's table, such as `23011MiB / 24564MiB`. */
const SMI_MEMORY = /(\d{1,7})MiB\s{0,8}\/\s{0,8}(\d{1,7})MiB/g

/** The figures of nvidia-smi's table, as a sentence without its subject; null for another text. */
export function smiTable(text: string): string | null {
  if (!/\b(?:NVIDIA|ROCM|AMD)-SMI\b|ROCm System Management Interface/.test(text)) return null
  const rows = [...text.matchAll(SMI_MEMORY)].slice(0, 8)
  const usage = rows.map(([, used, total], gpu) => {
    const [usedBytes, totalBytes] = [used, total].map(mebibytes => formatBytes(Number(mebibytes) * 2 ** 20))
    return `GPU ${gpu} has ${usedBytes} of ${totalBytes} in use`
  })
  return `is a table of a driver's tool, which knows only totals and processes${usage.length === 0 ? '' : `: ${usage.join(', ')}`}`
}
