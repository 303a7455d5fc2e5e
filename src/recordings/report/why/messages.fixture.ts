// Out-of-memory messages in the wordings that were found in public reports from 2018 to 2026, each with the answer
// worked out by hand. The numbers are invented.

import type { Verdict } from '../../trace/failures/out-of-memory.js'

export interface MessageCase {
  /** the version or the source of the wording */
  readonly wording: string
  readonly text: string
  readonly verdict: Verdict
  /** a part of the verdict in words */
  readonly says: string
}

const row = (wording: string, text: string, verdict: Verdict, says: string): MessageCase => ({
  wording,
  text,
  verdict,
  says,
})
const OLD_TAIL =
  ' If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation.  See documentation ' +
  'for Memory Management and PYTORCH_CUDA_ALLOC_CONF'
const NEW_TAIL =
  ' If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid ' +
  'fragmentation.  See documentation for Memory Management  (https://pytorch.org/docs/stable/notes/cuda.html)'

/** The message of versions 1.0 to 1.3, where cached is what is idle. */
const cached = (asked: string, total: string, inUse: string, free: string, idle: string) =>
  `CUDA out of memory. Tried to allocate ${asked} (GPU 0; ${total} total capacity; ${inUse} already allocated; ${free} free; ${idle} cached)`
/** The message of versions 1.4 to 2.0. */
const reserved = (asked: string, total: string, inUse: string, free: string, all: string, gpu = 0) =>
  `CUDA out of memory. Tried to allocate ${asked} (GPU ${gpu}; ${total} total capacity; ${inUse} already allocated; ${free} free; ${all} reserved in total by PyTorch)`
/** The message since version 2.1. */
const unallocated = (
  asked: string,
  total: string,
  free: string,
  between: string,
  inUse: string,
  idle: string,
  kind = 'CUDA',
) =>
  `${kind} out of memory. Tried to allocate ${asked}. GPU 0 has a total capacity of ${total} of which ${free} is free. ` +
  `${between}Of the allocated memory ${inUse} is allocated by PyTorch, and ${idle} is reserved by PyTorch but unallocated.`

const error = (message: string) =>
  `Traceback (most recent call last):\n  File "train.py", line 7, in <module>\ntorch.OutOfMemoryError: ${message}${NEW_TAIL}\n`

/** Eleven reports that a sum answers. */
export const SUMS: readonly MessageCase[] = [
  row(
    '2.4',
    error(unallocated('22.78 GiB', '79.15 GiB', '12.73 GiB', '', '55.00 GiB', '9.35 GiB')),
    'tooLittle',
    '0.70 GiB are missing',
  ),
  row(
    '2.4',
    error(unallocated('189.00 GiB', '79.15 GiB', '21.50 GiB', '', '47.00 GiB', '8.50 GiB')),
    'tooLittle',
    '159.00 GiB are missing. The whole device has less',
  ),
  row(
    '2.5',
    error(unallocated('125.00 GiB', '139.72 GiB', '50.25 GiB', '', '80.00 GiB', '3.75 GiB')),
    'tooLittle',
    '71.00 GiB are missing',
  ),
  row(
    '2.5',
    error(unallocated('16.00 GiB', '23.65 GiB', '300.00 MiB', '', '22.00 GiB', '212.00 MiB')),
    'tooLittle',
    '15.50 GiB are missing',
  ),
  row(
    '2.6',
    error(unallocated('7.20 GiB', '23.65 GiB', '1.20 GiB', '', '20.00 GiB', '1.13 GiB')),
    'tooLittle',
    '4.87 GiB are missing',
  ),
  row(
    '2.6',
    error(unallocated('6.46 GiB', '15.89 GiB', '3.00 GiB', '', '12.00 GiB', '481.28 MiB')),
    'tooLittle',
    '2.99 GiB are missing',
  ),
  row(
    'HIP',
    error(unallocated('5.61 GiB', '19.98 GiB', '2.51 GiB', '', '15.00 GiB', '1.50 GiB', 'HIP')),
    'tooLittle',
    '1.60 GiB are missing',
  ),
  row(
    '2.3',
    error(unallocated('154.00 MiB', '23.65 GiB', '112.64 MiB', '', '22.00 GiB', '911.36 MiB')),
    'fragmentation',
    '1.00 GiB were free or idle, and 0.15 GiB were asked',
  ),
  row(
    '1.7',
    `RuntimeError: ${reserved('2.93 GiB', '15.90 GiB', '4.00 GiB', '481.28 MiB', '14.00 GiB')}`,
    'fragmentation',
    '10.47 GiB were free or idle',
  ),
  row(
    '1.2',
    `RuntimeError: ${cached('7.31 GiB', '15.75 GiB', '4.00 GiB', '3.36 GiB', '7.50 GiB')}`,
    'fragmentation',
    '10.86 GiB were free or idle',
  ),
  row(
    '1.13',
    `OutOfMemoryError: ${reserved('1024.00 MiB', '23.69 GiB', '21.00 GiB', '993.28 MiB', '22.00 GiB')}${OLD_TAIL}`,
    'fragmentation',
    '1.97 GiB were free or idle',
  ),
]

export const MESSAGES: readonly MessageCase[] = [
  row(
    '2.15, the reserve of a segment',
    `${unallocated('12.00 GiB', '79.15 GiB', '60.00 GiB', '', '10.00 GiB', '2.00 GiB')} This allocation exceeds the expandable-segment reserve of 3.96 GiB for stream reserve class 'tiny', and a single allocation cannot span expandable segments. Raise PYTORCH_CUDA_ALLOC_CONF expandable_segments_reserve or expandable_segments_reserve_by_class (or unset it) so that a segment is at least 12.00 GiB.`,
    'segmentTooSmall',
    'it has addresses for 3.96 GiB, and 12.00 GiB were asked, which cannot lie in two. Raise expandable_segments_reserve to 12 GiB or more',
  ),
  row(
    '2.15, the reserve of a segment, and too little memory',
    `${unallocated('12.00 GiB', '79.15 GiB', '5.00 GiB', '', '70.00 GiB', '2.00 GiB')} This allocation exceeds the expandable-segment reserve of 3.96 GiB for this stream, and a single allocation cannot span expandable segments.`,
    'tooLittle',
    '5.00 GiB are missing',
  ),
  row(
    '2.15, expandable segments',
    `${unallocated('2.00 GiB', '79.15 GiB', '1.00 GiB', '', '70.00 GiB', '5.00 GiB')} expandable_segments is enabled. If instead the process is running out of virtual address space (VSZ), expandable segments may be over-reserving VA (each segment reserves ~9/8 of device memory, times the number of streams); reduce it via PYTORCH_CUDA_ALLOC_CONF expandable_segments_reserve / expandable_segments_reserve_by_class.`,
    'fragmentation',
    '6.00 GiB were free or idle',
  ),
  row(
    '1.0',
    `RuntimeError: ${cached('27.00 MiB', '3.95 GiB', '3.20 GiB', '20.50 MiB', '512.00 KiB')}`,
    'tooLittle',
    '6.00 MiB are missing',
  ),
  row(
    '1.0',
    cached('1024.00 KiB', '11.17 GiB', '10.90 GiB', '600.00 KiB', '30.00 MiB'),
    'fragmentation',
    '30.59 MiB were free or idle',
  ),
  row(
    '1.1',
    cached('12.00 MiB', '10.92 GiB', '8.00 MiB', '9.00 GiB', '4.00 MiB'),
    'fragmentation',
    'the driver refused',
  ),
  row(
    '1.2, a logger and a progress bar',
    `WARNING:root:${cached('1.70 GiB', '10.76 GiB', '4.00 GiB', '356.00 MiB', '5.50 GiB')}      | 1/2538 [00:00<?, ?batch/s]`,
    'fragmentation',
    '5.85 GiB were free or idle',
  ),
  row(
    '1.4',
    reserved('260.00 MiB', '2.00 GiB', '800.00 MiB', '140.00 MiB', '1.00 GiB'),
    'fragmentation',
    '364.00 MiB were free or idle',
  ),
  row(
    '1.5, without its start',
    reserved('20.00 MiB', '1.96 GiB', '1.24 GiB', '2.88 MiB', '1.25 GiB').slice(20),
    'unknown',
    'equal within its rounding',
  ),
  row(
    '1.6',
    reserved('2.20 GiB', '6.00 GiB', '780.00 MiB', '3.00 GiB', '1.20 GiB'),
    'fragmentation',
    'The device alone had 3 GiB free',
  ),
  row(
    '1.4, half of the device unused',
    reserved('10.80 GiB', '23.65 GiB', '1.00 GiB', '10.20 GiB', '12.50 GiB'),
    'fragmentation',
    '21.70 GiB were free or idle',
  ),
  row(
    '1.8, a limit',
    'CUDA out of memory. Tried to allocate 1.50 GiB (GPU 0; 15.78 GiB total capacity; 3.20 GiB already allocated; 11.00 GiB free; 3.95 GiB allowed; 3.60 GiB reserved in total by PyTorch)',
    'ownLimit',
    '0.75 GiB are missing for the 1.50 GiB',
  ),
  row(
    '1.9, within a limit',
    'CUDA out of memory. Tried to allocate 512.00 MiB (GPU 0; 15.78 GiB total capacity; 2.00 GiB already allocated; 11.00 GiB free; 3.95 GiB allowed; 3.80 GiB reserved in total by PyTorch)',
    'fragmentation',
    'A limit of the program itself kept it from the device, which had 11 GiB free',
  ),
  row(
    '1.11',
    `RuntimeError: ${reserved('1.60 GiB', '7.79 GiB', '3.50 GiB', '1.40 GiB', '5.30 GiB', 1)}${OLD_TAIL}`,
    'fragmentation',
    '3.20 GiB were free or idle',
  ),
  row(
    '1.11, another program holds it',
    reserved('20.00 MiB', '23.70 GiB', '1.20 GiB', '6.00 MiB', '1.21 GiB'),
    'unknown',
    'hold 22.48 GiB',
  ),
  row(
    '1.13',
    `torch.cuda.OutOfMemoryError: ${reserved('1.70 GiB', '6.00 GiB', '3.50 GiB', '1.00 GiB', '3.51 GiB')}${OLD_TAIL}`,
    'tooLittle',
    '0.69 GiB are missing',
  ),
  row(
    '2.0, Windows',
    reserved('2.10 GiB', '8.00 GiB', '19.80 GiB', '0 bytes', '22.20 GiB') + OLD_TAIL,
    'unknown',
    'contradict each other: the memory in use, 19.8 GiB, is above the device',
  ),
  row(
    '2.1',
    `torch.cuda.OutOfMemoryError: ${unallocated('172.00 MiB', '23.65 GiB', '54.00 MiB', 'Process 835399 has 23.59 GiB memory in use. ', '23.21 GiB', '4.00 MiB').replace('capacity', 'capacty')}`,
    'tooLittle',
    '114.00 MiB are missing',
  ),
  row(
    '2.2, a small request',
    unallocated('20.00 MiB', '14.56 GiB', '5.00 MiB', '', '14.29 GiB', '3.00 MiB'),
    'tooLittle',
    'No setting gains more than the 8.00 MiB that are left: 12.00 MiB are missing',
  ),
  row(
    '2.2, another program',
    unallocated(
      '20.00 MiB',
      '79.32 GiB',
      '4.00 MiB',
      'Process 32777 has 76.96 GiB memory in use. Including non-PyTorch memory, this process has 2.33 GiB memory in use. ',
      '1.62 GiB',
      '30.00 MiB',
    ),
    'fragmentation',
    '34.00 MiB were free or idle',
  ),
  row(
    '2.2, another program holds it',
    unallocated(
      '1.24 GiB',
      '139.80 GiB',
      '623.00 MiB',
      'Including non-PyTorch memory, this process has 123.29 GiB memory in use. Process 2951793 has 15.88 GiB memory in use. ',
      '122.00 GiB',
      '200.00 MiB',
    ),
    'tooLittle',
    'Process 2951793 holds 15.88 GiB',
  ),
  row(
    '2.4',
    error(
      unallocated(
        '19.60 GiB',
        '23.68 GiB',
        '11.80 GiB',
        'Including non-PyTorch memory, this process has 11.79 GiB memory in use. ',
        '11.44 GiB',
        '40.00 MiB',
      ),
    ),
    'tooLittle',
    '7.76 GiB are missing',
  ),
  row(
    '2.4, a size of a bug',
    error(unallocated('130000.00 GiB', '23.56 GiB', '16.50 GiB', '', '5.45 GiB', '1.10 GiB')),
    'tooLittle',
    'The size itself is probably wrong',
  ),
  row(
    '2.4, Windows',
    error(
      unallocated(
        '34.00 MiB',
        '4.00 GiB',
        '0 bytes',
        'Including non-PyTorch memory, this process has 17179869184.00 GiB memory in use. ',
        '3.35 GiB',
        '120.00 MiB',
      ),
    ),
    'fragmentation',
    '120.00 MiB were free or idle',
  ),
  row(
    'HIP',
    error(unallocated('6.60 GiB', '19.92 GiB', '6.20 GiB', '', '5.30 GiB', '7.00 GiB', 'HIP')),
    'fragmentation',
    '13.20 GiB were free or idle',
  ),
  row(
    'HIP',
    `ERROR | HIP out of memory${unallocated('120.00 MiB', '19.94 GiB', '550.00 MiB', '', '15.87 GiB', '160.00 MiB', '').slice(14)}`,
    'fragmentation',
    '710.00 MiB were free or idle',
  ),
  row(
    'HIP',
    error(unallocated('76.00 MiB', '287.98 GiB', '0 bytes', '', '8.51 GiB', '2.00 MiB', 'HIP')),
    'tooLittle',
    '74.00 MiB are missing',
  ),
  row(
    '2.9, HIP, a limit and private pools',
    error(
      'HIP out of memory. Tried to allocate 4.00 MiB. GPU 0 has a total capacity of 255.98 GiB of which 244.00 GiB is free. 1.05 GiB allowed; Of the allocated memory 1000.00 MiB is allocated by PyTorch, with 17.00 MiB allocated in private pools (e.g., HIP Graphs), and 60.00 MiB is reserved by PyTorch but unallocated.',
    ),
    'fragmentation',
    'A limit of the program itself',
  ),
  row(
    '2.4, private pools',
    error(
      'CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 23.65 GiB of which 500.00 MiB is free. Of the allocated memory 22.00 GiB is allocated by PyTorch, with 2.00 GiB allocated in private pools (e.g., CUDA Graphs), and 12.00 MiB is reserved by PyTorch but unallocated.',
    ),
    'tooLittle',
    'Private pools hold 2 GiB of idle memory',
  ),
  row(
    '2.8',
    error(
      unallocated(
        '340.00 MiB',
        '23.52 GiB',
        '120.00 MiB',
        'Including non-PyTorch memory, this process has 23.39 GiB memory in use. ',
        '21.81 GiB',
        '1.10 GiB',
      ),
    ),
    'fragmentation',
    '1.22 GiB were free or idle, and 0.33 GiB were asked',
  ),
  row(
    'notes, a size in a line',
    'Tried to allocate 20.00 GiB\n- `GPU 0 has a total capacity of 23.65 GiB of which 1.00 GiB is free`\n- `21.00 GiB is allocated by PyTorch, and 1.50 GiB is reserved by PyTorch but unallocated`',
    'tooLittle',
    '17.50 GiB are missing',
  ),
  row(
    'a terminal of 40 columns',
    error(unallocated('3.00 GiB', '23.65 GiB', '1.00 GiB', '', '20.00 GiB', '1.50 GiB')).replace(/(.{40})/g, '$1\n'),
    'tooLittle',
    '0.50 GiB are missing',
  ),
  row(
    'JSON with colours',
    JSON.stringify({
      log: `\u001b[31m${error(unallocated('3.00 GiB', '23.65 GiB', '1.00 GiB', '', '20.00 GiB', '1.50 GiB'))}\u001b[0m`,
    }),
    'tooLittle',
    '0.50 GiB are missing',
  ),
  row(
    'a box',
    `│ torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB. GPU 0  │\n│ has a total capacity of 23.65 GiB of which 1.00 GiB is free. Of the allocated  │\n│ memory 20.00 GiB is allocated by PyTorch, and 1.50 GiB is reserved by PyTorch  │\n│ but unallocated.                                                               │`,
    'tooLittle',
    '0.50 GiB are missing',
  ),
  row(
    'ranks',
    `[rank3]: torch.OutOfMemoryError: ${unallocated('3.00 GiB', '23.65 GiB', '1.00 GiB', '', '20.00 GiB', '1.50 GiB').replace('GPU 0', '\n[rank3]: GPU 3')}`,
    'tooLittle',
    '0.50 GiB are missing',
  ),
  row(
    'a worker',
    `(VllmWorker rank=1 pid=254) ${error(unallocated('1.20 GiB', '93.02 GiB', '1.15 GiB', '', '90.63 GiB', '120.00 MiB'))}`,
    'fragmentation',
    '1.27 GiB were free or idle',
  ),
  row(
    'a quote',
    error(unallocated('338.00 MiB', '23.52 GiB', '123.75 MiB', '', '21.81 GiB', '100.00 MiB')).replaceAll(
      '. ',
      '.\n> ',
    ),
    'tooLittle',
    '114.25 MiB are missing',
  ),
  row(
    'cut off',
    error(
      unallocated('2.00 GiB', '23.65 GiB', '114.06 MiB', 'Process 1234 has 23.40 GiB memory in use. ', '1', '1'),
    ).slice(0, 250),
    'unknown',
    'is cut off and lacks what was idle',
  ),
  row(
    'cut off early',
    'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB',
    'unknown',
    'lacks what was free on the device, what was idle',
  ),
  row(
    '1 EiB',
    'RuntimeError: CUDA out of memory. Tried to allocate more than 1EB memory.',
    'tooLittle',
    'The size itself is probably wrong',
  ),
  row(
    'XPU',
    `${unallocated('4.60 GiB', '5.65 GiB', '5.65 GiB', '', '200.00 KiB', '1.80 MiB', 'XPU')} Please use \`empty_cache\` to release all unoccupied cached memory.`,
    'fragmentation',
    'The device alone had 5.65 GiB free',
  ),
  row(
    'XPU, older',
    'RuntimeError: XPU out of memory. Tried to allocate 1.70 GiB (GPU 0; 15.56 GiB total capacity; 176.00 MiB already allocated; 176.00 MiB reserved in total by PyTorch)',
    'unknown',
    'lacks what was free on the device',
  ),
  row(
    'NPU',
    'RuntimeError: NPU out of memory. Tried to allocate 5.00 GiB (NPU 3; 60.96 GiB total capacity; 49.50 GiB already allocated; 49.50 GiB current active; 1.30 GiB free; 57.50 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation.',
    'fragmentation',
    '9.30 GiB were free or idle',
  ),
  row(
    'a negative size',
    reserved('2.00 GiB', '7.79 GiB', '-5.20 GiB', '1.10 GiB', '5.30 GiB'),
    'unknown',
    'the memory in use is below 0',
  ),
  row(
    'more in use than reserved',
    reserved('2.00 GiB', '7.79 GiB', '5.20 GiB', '1.10 GiB', '4.30 GiB'),
    'unknown',
    'the idle memory is below 0',
  ),
  row(
    'as much in use as reserved, but for rounding',
    reserved('2.00 GiB', '7.79 GiB', '5.31 GiB', '1.10 GiB', '5.30 GiB'),
    'tooLittle',
    '0.90 GiB are missing',
  ),
  row(
    'no number',
    reserved('nan GiB', '7.79 GiB', '5.20 GiB', '1.10 GiB', '5.30 GiB'),
    'unknown',
    'the request is no size',
  ),
  row(
    '400 digits',
    reserved(`${'9'.repeat(400)}.00 GiB`, '7.79 GiB', '5.20 GiB', '1.10 GiB', '5.30 GiB'),
    'unknown',
    'the request is no size',
  ),
  row(
    'more free than there is',
    reserved('2.00 GiB', '7.79 GiB', '5.20 GiB', '9.10 GiB', '5.30 GiB'),
    'unknown',
    'the free memory, 9.1 GiB, is above',
  ),
]

const exact = (wording: string, text: string, verdict: Verdict, says: string) => row(wording, text, verdict, says)

/** Messages of other allocators, in one line each. */
export const OTHERS: readonly MessageCase[] = [
  exact(
    "PyTorch's backend cudaMallocAsync",
    'torch.OutOfMemoryError: Allocation on device 5 would exceed allowed memory. (out of memory)\nCurrently allocated     : 54.00 GiB\nRequested               : 680.00 MiB\nDevice limit            : 79.35 GiB\nFree (according to CUDA): 27.00 MiB\nPyTorch limit (set by user-supplied memory fraction)\n                        : 17179869184.00 GiB',
    'unknown',
    '680 MiB asked, 54 GiB in use, 27 MiB free, 79.35 GiB on the device',
  ),
  exact(
    "PyTorch's backend cudaMallocAsync",
    'Allocation on device 0 would exceed allowed memory. (out of memory)\nCurrently allocated     : 60.00 GiB\nRequested               : 25.00 GiB\nDevice limit            : 79.35 GiB\nFree (according to CUDA): 10.00 GiB',
    'tooLittle',
    '5.65 GiB are missing',
  ),
  exact(
    "PyTorch's backend for MPS",
    'RuntimeError: MPS backend out of memory (MPS allocated: 9.50 GiB, other allocations: 17.30 GiB, max allowed: 27.20 GiB). Tried to allocate 600.00 MiB on private pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory allocations (may cause system failure).',
    'ownLimit',
    '190.40 MiB are missing',
  ),
  exact(
    'CuPy',
    'cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 25,600,000 bytes (allocated so far: 3,635,267,072 bytes).',
    'unknown',
    '24.41 MiB asked, 3.39 GiB in use',
  ),
  exact(
    'CuPy',
    'Out of memory allocating 2,147,483,648 bytes (allocated so far: 3,221,225,472 bytes, limit set to: 4,294,967,296 bytes).',
    'ownLimit',
    '1.00 GiB are missing',
  ),
  exact(
    'CuPy',
    'cupy.cuda.memory.OutOfMemoryError: out of memory to allocate 1073741824 bytes (total 12373894656 bytes)',
    'unknown',
    '1 GiB asked, 10.52 GiB in use',
  ),
  exact(
    "ONNX Runtime's arena",
    '[E:onnxruntime:, sequential_executor.cc:514] Non-zero status code returned while running Conv node. Status Message: bfc_arena.cc:376 void* onnxruntime::BFCArena::AllocateRawInternal(size_t, bool) Failed to allocate memory for requested buffer of size 2830172160',
    'unknown',
    '2.64 GiB asked',
  ),
  exact(
    'JAX (XLA)',
    'jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 7406166528 bytes.',
    'unknown',
    '6.9 GiB asked',
  ),
  exact(
    'JAX (XLA)',
    'Stats: \nLimit:                      4928097484\nInUse:                      4248542720\nMaxInUse: 4248542720\nRESOURCE_EXHAUSTED: Out of memory while trying to allocate 1073741824 bytes.',
    'ownLimit',
    '0.37 GiB are missing',
  ),
  exact(
    'TensorFlow',
    'ResourceExhaustedError: OOM when allocating tensor with shape[16,112,112,147] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc',
    'unknown',
    'it names no sizes',
  ),
  exact(
    'RMM',
    'MemoryError: std::bad_alloc: out_of_memory: RMM failure at:pool_memory_resource.hpp:196: Maximum pool size exceeded',
    'unknown',
    'it names no sizes',
  ),
  exact(
    'llama.cpp (ggml)',
    'ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9866.00 MiB on device 1: cudaMalloc failed: out of memory',
    'unknown',
    '9.63 GiB asked',
  ),
  exact(
    'Paddle',
    'Out of memory error on GPU 0. Cannot allocate 3.500000GB memory on GPU 0, 21.000000GB memory has been allocated and available memory is only 2.800000GB.',
    'unknown',
    '3.5 GiB asked, 21 GiB in use, 2.8 GiB free',
  ),
  exact(
    "PyTorch's CPU allocator",
    "RuntimeError: [enforce fail at alloc_cpu.cpp:75] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 132426121216 bytes. Error code 12 (Cannot allocate memory)",
    'unknown',
    "the host's memory",
  ),
  exact(
    "the driver's own allocation calls",
    'RuntimeError: CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other API call',
    'unknown',
    'it names no sizes',
  ),
  exact(
    "the driver's own allocation calls",
    'RuntimeError: cuda runtime error (2) : out of memory at /pytorch/aten/src/THC/generic/THCStorage.cu:58',
    'unknown',
    'it names no sizes',
  ),
  exact(
    'vLLM',
    'ValueError: Free memory on device (5.50/23.52 GiB) on startup is less than desired GPU memory utilization (0.9, 21.17 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.',
    'tooLittle',
    '15.67 GiB are missing',
  ),
  exact(
    'a library beside PyTorch (cuBLAS, cuDNN, NCCL)',
    'RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`',
    'unknown',
    'empty_cache() gives that back',
  ),
  exact(
    "PyTorch's backend cudaMallocAsync",
    'torch.OutOfMemoryError: Allocation on device 0 \n',
    'unknown',
    'no sizes',
  ),
  exact(
    'JAX (XLA)',
    'XlaRuntimeError: RESOURCE_EXHAUSTED: Failed to allocate request for 7.25GiB (7784628224B) on device ordinal 0',
    'unknown',
    '7.25 GiB asked',
  ),
  exact(
    'JAX (XLA)',
    'RESOURCE_EXHAUSTED: Attempting to allocate 4.50G. That was not possible. There are 1.25G free.; (0x0x0_HBM0)',
    'tooLittle',
    '3.25 GiB are missing',
  ),
  exact('vLLM', 'ValueError: No available memory for the cache blocks. Try increasing it', 'unknown', 'no sizes'),
  exact(
    'vLLM',
    "To serve at least one request with the models's max seq len (65536), (8.00 GiB KV cache is needed, which is larger than the available KV cache memory (6.50 GiB).",
    'tooLittle',
    '1.50 GiB are missing',
  ),
  exact("the driver's own allocation calls", 'cudaMalloc failed: out of memory', 'unknown', 'no sizes'),
  exact("the driver's own allocation calls", 'what(): cudaFree(0): out of memory', 'unknown', 'no sizes'),
  exact('PyTorch', 'torch.OutOfMemoryError: CUDA out of memory.', 'unknown', 'torch.cuda.memory._record'),
  exact('an unknown allocator', 'fatal: device out of memory', 'unknown', 'torch.cuda.memory._record'),
]
