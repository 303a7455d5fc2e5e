// The verdict on an out-of-memory message, as sentences.

import { formatBytes, GiB, KiB, MiB } from '../../../core/base/bytes.js'
import { listed } from '../../../core/base/readable.js'
import {
  type Contradiction,
  type MessageAnswer,
  MOST_DEVICE_BYTES,
  type OutOfMemoryMessage,
} from '../../trace/messages/out-of-memory-message.js'
import { exceeds, isPossible, minus, type RoundedSize } from '../../trace/messages/rounded-size.js'
import { RECORDERS } from '../recorders.js'
import { segmentText, WAITING_REMEDY } from './out-of-memory-text.js'

/** PyTorch asks the device for these segments, though the request may be smaller. */
const SEGMENTS: readonly { readonly bytes: number; readonly least: number; readonly requests: string }[] = [
  { bytes: 2 * MiB, least: 512, requests: 'up to 1 MiB' },
  { bytes: 20 * MiB, least: MiB, requests: 'of 1 to 10 MiB' },
]

const MAY_WAIT = ' Part of the idle memory may wait for another stream: torch.cuda.memory_summary() tells.'
const NO_RECORDING = 'Recordings are read of CUDA and HIP only.'

/** Whether PyTorch records the allocations of this kind of device in the format that is read. */
export function isRecordable({ backend }: OutOfMemoryMessage): boolean {
  return backend === 'CUDA' || backend === 'HIP'
}

/** Why the request failed, and what can help. */
export function messageVerdict(message: OutOfMemoryMessage, answer: MessageAnswer): string {
  const { verdict, room, missing, deviceHadRoom, withinLimit } = answer
  const unit = unitOf(message, answer)
  const asked = message.asked === null ? '' : amount(message.asked, unit)
  const together = room === null ? '' : amount(room, unit)
  switch (verdict) {
    case 'tooLittle':
      return tooLittleText(message, answer)
    case 'segmentTooSmall':
      return segmentText(amount(message.segment!, unit), asked, sizeText(message.asked!))
    case 'ownLimit': {
      if (message.isRejected) return rejectedText(asked)
      const limit = amount(message.allowed!, unit)
      const had = deviceHadRoom ? ` The device had ${sizeText(message.free!)} free.` : ''
      return (
        `The program's own limit: it may have ${limit} (${limitOf(message)}), and ${amount(missing!, unit)} are missing ` +
        `for the ${asked} that were asked. No setting can help.${had} Raise the limit, or hold less.`
      )
    }
    case 'fragmentation':
      return (
        `Fragmentation or rounding: ${withinLimit === null ? `${together} were free or idle` : `the limit left ${amount(withinLimit, unit)}`}, ` +
        `and ${asked} were asked.${piecesText(message, withinLimit ?? room, unit)}${refusedText(message, answer)}${deviceHadRoom ? '' : otherProcess(message, message.asked!)} ` +
        `A setting may help. ${isRecordable(message) ? 'Make a recording: cuda-mempool tune replays it under each setting.' : NO_RECORDING}` +
        (message.waiting === null && !deviceHadRoom && isRecordable(message) ? MAY_WAIT : '')
      )
    case 'waiting':
      return (
        `Freed, but another stream still uses it: ${amount(message.waiting!, unit)} of the idle memory wait for the work ` +
        `of other streams (record_stream). Without it ${together} were free or idle, and ${asked} were asked. ${WAITING_REMEDY}`
      )
    case 'unknown':
      return unknownText(message, answer)
  }
}

function rejectedText(asked: string): string {
  return (
    `The program's own limit: with the ${asked || 'size'} that ${asked === '' ? 'was' : 'were'} asked, PyTorch would have ` +
    'reserved more than per_process_memory_fraction allows. By throw_on_cudamalloc_oom it then gives no idle memory ' +
    'back and does not ask again. Raise the limit, hold less, or leave that setting out.'
  )
}

/** How much is missing if no idle piece serves: a message does not tell their sizes. */
function piecesText({ asked, idle }: OutOfMemoryMessage, room: RoundedSize | null, unit: Unit | undefined): string {
  if (asked === null || idle === null || room === null || idle.bytes === 0) return ''
  const missing = minus(asked, minus(room, idle))
  if (missing.least <= 0) return ''
  const pieces = `${amount(idle, unit)} of it are idle pieces, whose sizes the message does not tell`
  const isNone = exceeds(asked, idle) === 'yes'
  return ` But ${pieces}: ${isNone ? 'none can be' : 'if none is'} large enough, ${isNone ? 'so ' : ''}${amount(missing, unit)} are missing.`
}

/** Why the device did not serve a request that it had room for. */
function refusedText({ free, allowed }: OutOfMemoryMessage, { deviceHadRoom }: MessageAnswer): string {
  if (!deviceHadRoom) return ''
  const had = `${sizeText(free!)} free`
  if (allowed !== null) return ` A limit of the program itself kept it from the device, which had ${had}.`
  return ` The device alone had ${had}: then the driver refused, or another program had the memory at that moment.`
}

/** A process that holds more than is missing. In a container one without a number of its own may be this one. */
function otherProcess({ processes }: OutOfMemoryMessage, missing: RoundedSize): string {
  const others = processes.filter(({ process, size }) => process !== null && size.least >= missing.most)
  const hasOwn = processes.some(({ process }) => process === null)
  return hasOwn && others.length > 0 ? ` Process ${others[0].process} holds ${sizeText(others[0].size)}.` : ''
}

function tooLittleText(message: OutOfMemoryMessage, answer: MessageAnswer): string {
  const { room, missing } = answer
  const unit = unitOf(message, answer)
  const { total, inUse, asked, privatePools, allocator } = message
  const wrong = asked!.least > MOST_DEVICE_BYTES ? ' The size itself is probably wrong.' : ''
  if (missing === null) return `Really too little: no device has the ${sizeText(asked!)} that were asked.${wrong}`
  const most =
    room === null
      ? `${amount(inUse!, unit)} of ${amount(total!, unit)} were in use`
      : `${amount(room, unit)} were free and idle together`
  const holder = otherProcess(message, missing)
  const whole = total !== null && asked!.least > total.most ? ' The whole device has less than was asked.' : ''
  const pools =
    privatePools !== null && privatePools.least >= missing.most
      ? ` Private pools hold ${sizeText(privatePools)} of idle memory, which goes back with their graphs.`
      : ''
  const least = segmentOf(message)?.least ?? Infinity
  // The request itself may be smaller than its segment, and fit into the rest.
  const settings =
    room !== null && room.most >= least
      ? `No setting gains more than the ${amount(room, unit)} that are left`
      : allocator === 'PyTorch'
        ? 'No setting can help'
        : 'No allocator could serve this'
  return (
    `Really too little: ${most}, and ${amount(asked!, unit)} were asked. ${settings}: ` +
    `${amount(missing, unit)} are missing.${whole}${wrong}${pools}${holder || elsewhereText(message, answer)} Hold less, free memory that other programs hold on the ` +
    'device, or use a larger one.'
  )
}

/** Much memory that is neither free nor PyTorch's; a context and its libraries take less than a tenth of a device. */
function elsewhereText({ total, asked }: OutOfMemoryMessage, { elsewhere }: MessageAnswer): string {
  if (total === null || elsewhere === null || elsewhere.least < Math.max(total.bytes / 10, asked?.most ?? 0)) return ''
  return ` Other programs, and this one's context and libraries, hold ${sizeText(elsewhere)}.`
}

function unknownText(message: OutOfMemoryMessage, answer: MessageAnswer): string {
  const { unknown, room, contradictions } = answer
  const unit = unitOf(message, answer)
  const recording = isRecordable(message) ? 'Make a recording.' : NO_RECORDING
  if (unknown === 'contradiction') {
    const [first] = contradictions
    return `The numbers contradict each other: ${contradictionText(first)}. So the sum does not decide. ${recording}`
  }
  if (unknown === 'rounding') {
    const ofDevice = exceeds(message.asked!, room!) === 'unsure'
    const [one, other] = ofDevice
      ? [`${amount(room!, unit)} free and idle`, `${amount(message.asked!, unit)} asked`]
      : [`in use and asked together`, `the limit of ${sizeText(message.allowed!)}`]
    return `The message alone cannot tell: ${one} and ${other} are equal within its rounding.${elsewhereText(message, answer)} ${recording}`
  }
  const lacks = [
    ...(message.asked === null ? ['what was asked'] : []),
    ...(message.free === null ? ['what was free on the device'] : []),
    ...(message.idle === null ? ['what was idle'] : []),
  ]
  const cut = message.isCut ? 'is cut off and lacks' : 'lacks'
  return `The message ${cut} ${listed(lacks)}, so it cannot tell why. ${recording}`
}

function contradictionText(found: Contradiction): string {
  if (found.kind === 'impossible') return `${found.what} is ${found.isNegative ? 'below 0' : 'no size'}`
  const spills = found.other === "the device's total" && found.what !== 'the free memory'
  const windows = spills
    ? '. On Windows the driver moves memory to the host: then the program needs more than the device has, and no setting changes that'
    : ''
  return `${found.what}, ${sizeText(found.size)}, is above ${found.other}${windows}`
}

function limitOf({ allocator }: OutOfMemoryMessage): string {
  return allocator === 'PyTorch' ? RECORDERS.PyTorch.limit : `of ${allocator}`
}

/** The segment that a message asked for, if its request may be smaller. */
export function segmentOf({ asked, allocator, isRejected }: OutOfMemoryMessage) {
  return allocator === 'PyTorch' && !isRejected ? SEGMENTS.find(({ bytes }) => bytes === asked?.bytes) : undefined
}

/** A size; a bad number as it is. */
export function sizeText(size: RoundedSize): string {
  return isPossible(size) ? formatBytes(size.bytes) : `${size.bytes} B`
}

/** A size with two decimals in the unit of the compared sizes, unless that leaves too few or too many digits. */
function amount(size: RoundedSize, unit: Unit | undefined): string {
  return isReadable(size, unit) ? `${(size.bytes / unit.bytes).toFixed(2)} ${unit.name}` : sizeText(size)
}

/** In the unit of the compared sizes if that is larger than its own one, without zeros at the end. */
export function listedAmount(size: RoundedSize, unit: Unit | undefined): string {
  const isSmall = isReadable(size, unit) && size.bytes < unit.bytes
  return isSmall ? `${Number((size.bytes / unit.bytes).toFixed(2))} ${unit.name}` : sizeText(size)
}

function isReadable({ bytes }: RoundedSize, unit: Unit | undefined): unit is Unit {
  return unit !== undefined && bytes >= unit.bytes / 10 && bytes < MOST_UNITS * unit.bytes
}

/** The unit of the request and of the room for it: that of the larger one, unless both would look alike in it. */
export function unitOf({ asked }: OutOfMemoryMessage, { room, withinLimit }: MessageAnswer): Unit | undefined {
  const request = asked?.bytes ?? 0
  const bound = (withinLimit ?? room)?.bytes ?? 0
  const ofLarger = UNITS.find(({ bytes }) => Math.max(request, bound) >= bytes)
  const isTold =
    ofLarger !== undefined && request >= ofLarger.bytes / 10 && Math.abs(request - bound) >= ofLarger.bytes / 100
  return isTold ? ofLarger : UNITS.find(({ bytes }) => request >= bytes)
}

/** A unit of sizes. */
export interface Unit {
  readonly name: string
  readonly bytes: number
}

const UNITS: readonly Unit[] = [
  { name: 'GiB', bytes: GiB },
  { name: 'MiB', bytes: MiB },
  { name: 'KiB', bytes: KiB },
]
/** More digits are harder to read than another unit. */
const MOST_UNITS = 10_000
