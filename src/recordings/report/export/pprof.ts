// Profiles for pprof: the message Profile of its profile.proto, packed by gzip.

import { gzipSync } from 'node:zlib'
import { CallSites, type NamedFrame } from '../../trace/frames/call-sites.js'
import { shortPath } from '../../trace/frames/short-path.js'
import { checkTrace, type Trace } from '../../trace/trace.js'
import { allocatedSums, callsAt, peakEvent, sumsAt } from './moment.js'
import { ProtobufMessage } from './protobuf.js'

/** Numbers of fields in profile.proto. */
const PROFILE = { sampleType: 1, sample: 2, location: 4, function: 5, stringTable: 6, comment: 13, defaultType: 14 }
const VALUE_TYPE = { type: 1, unit: 2 }
const SAMPLE = { locations: 1, values: 2 }
const LOCATION = { id: 1, line: 4 }
const LINE = { function: 1, line: 2 }
// Without a system name (3): pprof takes one that equals the name for C++, and shortens `<module>` to nothing.
const FUNCTION = { id: 1, name: 2, filename: 4 }

const NOTHING = { bytes: 0, blocks: 0 }
/** Kinds of values of each sample; programs show `inuse_space` first. */
const VALUE_TYPES = [
  ['inuse_objects', 'count'],
  ['inuse_space', 'bytes'],
  ['alloc_objects', 'count'],
  ['alloc_space', 'bytes'],
]

/**
 * What the program held after an event, by default at the peak, as a profile for pprof (protobuf, packed by gzip). Its
 * values are `inuse_objects` and `inuse_space`, and over the whole recording `alloc_objects` and `alloc_space`, as in
 * heap profiles of Go. Machinery, such as PyTorch's dispatch, is left out of stacks, and paths are short. Throws
 * RangeError for an event that the trace does not have, FormatError if no block has a call stack, and TypeError for
 * anything but a trace.
 */
export function pprofProfile(trace: Trace, event?: number): Buffer {
  checkTrace('pprofProfile', trace)
  const moment = event === undefined ? peakEvent(trace) : event
  const held = sumsAt(trace, moment)
  const allocated = allocatedSums(trace)
  const sites = CallSites.of(trace.stacks)
  const profile = new ProtobufMessage()
  const texts = new Numbers<string>()
  const textOf = (text: string) => texts.of(text, text)
  textOf('')
  for (const [type, unit] of VALUE_TYPES) {
    const valueType = new ProtobufMessage().number(VALUE_TYPE.type, textOf(type)).number(VALUE_TYPE.unit, textOf(unit))
    profile.message(PROFILE.sampleType, valueType)
  }
  const functions = new Numbers<NamedFrame>()
  const locations = new Numbers<NamedFrame>()
  /** Many stacks have one frame, whose names may be long. */
  const locationOf = new Map<NamedFrame, number>()
  for (const stack of new Set([...held.keys(), ...allocated.keys()])) {
    const [now, ever] = [held.get(stack) ?? NOTHING, allocated.get(stack) ?? NOTHING]
    const path = callsAt(sites, stack).map(frame => {
      let location = locationOf.get(frame)
      if (location === undefined) {
        functions.of(`${frame.name}\n${frame.file}`, frame)
        // pprof's numbers begin at 1.
        location = 1 + locations.of(`${frame.line}\n${frame.name}\n${frame.file}`, frame)
        locationOf.set(frame, location)
      }
      return location
    })
    const values = [now.blocks, now.bytes, ever.blocks, ever.bytes]
    profile.message(PROFILE.sample, new ProtobufMessage().packed(SAMPLE.locations, path).packed(SAMPLE.values, values))
  }
  locations.values.forEach((frame, i) => {
    const number = 1 + functions.of(`${frame.name}\n${frame.file}`, frame)
    const line = new ProtobufMessage().number(LINE.function, number).number(LINE.line, frame.line)
    profile.message(PROFILE.location, new ProtobufMessage().number(LOCATION.id, i + 1).message(LOCATION.line, line))
  })
  functions.values.forEach(({ file, name }, i) => {
    profile.message(
      PROFILE.function,
      new ProtobufMessage()
        .number(FUNCTION.id, i + 1)
        .number(FUNCTION.name, textOf(name))
        .number(FUNCTION.filename, textOf(shortPath(file))),
    )
  })
  profile.number(PROFILE.comment, textOf(`${trace.file}: device ${trace.device}, after event ${moment}`))
  profile.number(PROFILE.defaultType, textOf('inuse_space'))
  for (const text of texts.values) profile.text(PROFILE.stringTable, text)
  return gzipSync(profile.finish())
}

/** Numbers of different values, from 0. */
class Numbers<Value> {
  readonly values: Value[] = []
  private readonly byKey = new Map<string, number>()

  of(key: string, value: Value): number {
    let number = this.byKey.get(key)
    if (number === undefined) {
      number = this.values.push(value) - 1
      this.byKey.set(key, number)
    }
    return number
  }
}
