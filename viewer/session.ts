// Answers the page's requests from unpacked pictures. It runs in the worker, and knows no DOM.

import { FormatError } from '../src/core/base/errors.js'
import { paintMap } from '../src/recordings/picture/address-map.js'
import { coloured, type Painting } from '../src/recordings/picture/cells.js'
import { decodePicture } from '../src/recordings/picture/codec.js'
import {
  type Colouring,
  cellsOf,
  chosenBlocks,
  colouringOf,
  usefulGroupings,
} from '../src/recordings/picture/colouring.js'
import { inUseIn, reservedIn, roundTop } from '../src/recordings/picture/columns.js'
import { eventRows } from '../src/recordings/picture/event-list.js'
import { holderRows, icicleOf } from '../src/recordings/picture/holders.js'
import { LiveBlocks } from '../src/recordings/picture/live-blocks.js'
import { type Moments, momentsOf } from '../src/recordings/picture/moments.js'
import {
  addressOf,
  type Picture,
  type PictureFrame,
  type PolicyPicture,
  runsOf,
  UNIT_BYTES,
  unitsOf,
} from '../src/recordings/picture/picture.js'
import { placeAt } from '../src/recordings/picture/place.js'
import { Pyramid } from '../src/recordings/picture/pyramid.js'
import { answerOf, historyOf } from '../src/recordings/picture/questions.js'
import { callsOf, callText, findBlocks, linesOf } from '../src/recordings/picture/stack-text.js'
import { bandAt, bandsOf, paintStacked, type StackedScale } from '../src/recordings/picture/stacked.js'
import { blocksLeft, leftBehind } from '../src/recordings/trace/analysis/steps.js'
import { Action, NEVER } from '../src/recordings/trace/trace.js'
import type {
  BlockInfo,
  BlockLine,
  BlockSet,
  Outline,
  PlaceInfo,
  RecordingInfo,
  RequestName,
  Requests,
  StackLine,
} from './protocol.js'

const MOST_ROWS = 200
const MOST_HISTORY = 60
/** Of a list: a browser draws these within a frame or two. */
const MOST_EVENTS = 1000
/** Of the lines that allocate in a range. */
const MOST_LINES_OF_RANGE = 3
/** Lines of a block's call stack. */
const MOST_LINES = 500

interface Loaded {
  readonly picture: Picture
  readonly live: LiveBlocks
  readonly pyramid: Pyramid
  /** the line of each block, from its first use on */
  lines: Colouring | null
}

type Handlers = {
  [Name in RequestName]: (
    asked: Requests[Name]['asked'],
  ) => Requests[Name]['answer'] | Promise<Requests[Name]['answer']>
}

export class Session implements Handlers {
  private readonly loaded = new Map<number, Loaded>()
  private current: Loaded | null = null
  private colouring: Colouring | null = null
  /** the blocks that `colouring` is of */
  private coloured: LiveBlocks | null = null
  private cellOf: Uint8Array = new Uint8Array(0)
  /** by block, 1 for those that a search and a filter find; null for all */
  private chosen: Uint8Array | null = null
  private version = 0

  async load({ index, packed }: Requests['load']['asked']): Promise<RecordingInfo> {
    let loaded = this.loaded.get(index)
    if (loaded === undefined) {
      const picture = decodePicture(await unpacked(packed ?? ''))
      const live = new LiveBlocks(picture)
      loaded = { picture, live, pyramid: new Pyramid(live.inUse), lines: null }
      this.loaded.set(index, loaded)
    }
    this.current = loaded
    const { picture, live } = loaded
    const { events, action, timeUs, blocks, steps, policies } = picture
    return {
      events,
      spanUs: timeUs[events - 1] ?? 0,
      timeUs,
      allocations: blocks.count - blocks.initial,
      peakEvent: live.peakEvent,
      peakBytes: live.peakBytes,
      steps,
      failures: Int32Array.from(action.keys()).filter(event => action[event] === Action.outOfMemory),
      policies: policies.map(each => ({
        policy: each.policy,
        label: each.label,
        hasMap: each.place !== null,
        units: unitsOf(each),
      })),
      groupings: usefulGroupings(picture),
      hasStacks: picture.stacks.parent.length > 1,
      left: leftBehind(blocks, endsOf(picture)).flatMap(({ leftBytes }) => leftBytes ?? []),
    }
  }

  colour({ grouping, find, ...filter }: Requests['colour']['asked']): Requests['colour']['answer'] {
    const { picture, live } = this.now
    if (this.colouring?.grouping !== grouping || this.coloured !== live) this.colouring = colouringOf(live, grouping)
    this.coloured = live
    this.chosen = chosenBlocks(this.colouring, filter, findBlocks(picture, find))
    this.cellOf = cellsOf(this.colouring, this.chosen)
    const { legend, isScale } = this.colouring
    return {
      legend,
      isScale,
      version: this.version++,
      found: this.chosen?.reduce((sum, each) => sum + each, 0) ?? null,
      foundBytesAtPeak: this.sum(this.among(live.at(live.peakEvent))),
    }
  }

  paint(asked: Requests['paint']['asked']): Requests['paint']['answer'] {
    const { view, stackedHeight, maps, palette, hatch, selected, raw } = asked
    const { picture, live, pyramid } = this.now
    const moments = momentsOf(picture, pyramid, view)
    const inUse = inUseIn(live, moments)
    const topBytes = roundTop(inUse)
    const scale = { width: view.width, height: stackedHeight, topBytes }
    const stacked = paintStacked(live, moments, this.cellOf, scale)
    const mapUnits = Math.max(...maps.map(({ policy }) => unitsOf(this.policy(policy))), 0)
    const paintings = maps.map(({ policy, width, height }) => {
      const columns = momentsOf(picture, pyramid, { ...view, width })
      return paintMap(live, this.policy(policy), columns, this.cellOf, { width, height, units: mapUnits })
    })
    const rgba = (painting: Painting) => (raw ? new Uint32Array(0) : coloured(painting, palette, hatch))
    return {
      view,
      event: moments.event.slice(),
      left: moments.left.slice(),
      inUse,
      topBytes,
      rows: stackedHeight,
      mapUnits,
      stacked: rgba(stacked),
      maps: paintings.map(rgba),
      outline: selected === null ? null : this.outline(selected, moments, scale, maps),
      rawStacked: raw ? stacked.cells : null,
      rawMaps: raw ? paintings.map(({ cells }) => cells) : [],
    }
  }

  curves({ view }: Requests['curves']['asked']): Requests['curves']['answer'] {
    const { picture, live, pyramid } = this.now
    const moments = momentsOf(picture, pyramid, view)
    const reserved = picture.policies.map(each => reservedIn(each, moments))
    return { event: moments.event.slice(), left: moments.left.slice(), inUse: inUseIn(live, moments), reserved }
  }

  pick(asked: Requests['pick']['asked']): PlaceInfo | null {
    const { live } = this.now
    const { event, bytes } = asked
    if (!('policy' in asked)) {
      const band = bandAt(live, event, bytes, asked)
      if (band === null) return null
      const isSmall = band.block < 0
      return { ...band, block: isSmall ? null : this.info(band.block), hole: null, isSmall }
    }
    const policy = this.policy(asked.policy)
    const { at, units, block, hole } = placeAt(live, policy, event, Math.floor(bytes / UNIT_BYTES))
    const [from, to] = [at * UNIT_BYTES, (at + units) * UNIT_BYTES]
    if (block >= 0) return { from, to, block: this.info(block), hole: null, isSmall: false }
    const neighbour = (number: number) => (number < 0 ? null : this.line(number))
    const info = hole && {
      ...hole,
      address: addressOf(policy, at),
      below: neighbour(hole.below),
      above: neighbour(hole.above),
    }
    return { from, to, block: null, hole: info, isSmall: false }
  }

  block({ block }: Requests['block']['asked']): BlockInfo | null {
    return block < this.now.picture.blocks.count ? this.info(block) : null
  }

  holders({ set, ...options }: Requests['holders']['asked']): Requests['holders']['answer'] {
    const { picture, live } = this.now
    const colouring = this.colouring ?? colouringOf(live, 'size')
    const all = this.blocksOf(set)
    const list = this.among(all)
    const before = set.kind === 'at' && set.before !== null ? this.among(live.at(set.before)) : null
    const { rows, groups } = holderRows(picture, colouring, list, before, MOST_ROWS)
    return {
      bytes: this.sum(list),
      allBytes: this.sum(all),
      blocks: list.length,
      groups,
      rows,
      boxes: icicleOf(picture, colouring, list, options),
    }
  }

  history({ block, policy }: Requests['history']['asked']): Requests['history']['answer'] {
    const found = historyOf(this.now.picture, this.policy(policy), block)
    const own = found.indexOf(block)
    const from = Math.max(0, Math.min(own - MOST_HISTORY / 2, found.length - MOST_HISTORY))
    return { total: found.length, rows: found.slice(from, from + MOST_HISTORY).map(each => this.line(each)) }
  }

  flow({ a, b }: Requests['flow']['asked']): Requests['flow']['answer'] {
    const { live, picture } = this.now
    const [allocated, freed] = (['allocated', 'freed'] as const).map(question =>
      this.among(answerOf(live, question, a, b)),
    )
    const totals = (list: Int32Array) => ({ bytes: this.sum(list), blocks: list.length })
    const { rows: lines } = holderRows(picture, this.lines, allocated, null, MOST_LINES_OF_RANGE)
    return { a, b, allocated: totals(allocated), freed: totals(freed), lines }
  }

  list({ from, to, policy }: Requests['list']['asked']): Requests['list']['answer'] {
    const { now, lines } = this
    const range = { from, to, most: MOST_EVENTS }
    const placed = policy === null ? null : this.policy(policy)
    const { rows, total } = eventRows(now.picture, placed, this.chosen, range)
    return { total, rows: rows.map(row => ({ ...row, line: lines.labelOf(lines.group[row.block]) })) }
  }

  /** The line of each block. */
  private get lines(): Colouring {
    this.now.lines ??= colouringOf(this.now.live, 'stack')
    return this.now.lines
  }

  /** Those of the blocks that a search and a filter find. */
  private among(blocks: Int32Array): Int32Array {
    const { chosen } = this
    return chosen === null ? blocks : blocks.filter(block => chosen[block] === 1)
  }

  private sum(blocks: Int32Array): number {
    const { bytes } = this.now.picture.blocks
    return blocks.reduce((sum, block) => sum + bytes[block], 0)
  }

  private get now(): Loaded {
    if (this.current === null) throw new FormatError('no recording is loaded')
    return this.current
  }

  private policy(name: string): PolicyPicture {
    const found = this.now.picture.policies.find(({ policy }) => policy === name)
    if (found === undefined) throw new FormatError(`the page has no policy '${name}'`)
    return found
  }

  private blocksOf(set: BlockSet): Int32Array {
    const { live } = this.now
    switch (set.kind) {
      case 'at':
        return live.at(set.event)
      case 'step':
        return Int32Array.from(blocksLeft(live.picture.blocks, endsOf(live.picture), set.step))
      case 'question':
        return answerOf(live, set.question, set.a, set.b)
    }
  }

  private outline(
    block: number,
    moments: Moments,
    scale: StackedScale,
    maps: Requests['paint']['asked']['maps'],
  ): Outline | null {
    const { live, picture } = this.now
    const { count, bytes, allocatedAt, freeRequestedAt } = picture.blocks
    if (block >= count) return null
    return {
      from: Math.max(0, allocatedAt[block]),
      to: Math.min(picture.events, freeRequestedAt[block]),
      bands: bandsOf(live, moments, block, scale),
      runs: maps.map(({ policy }) => runsOf(this.policy(policy), block, bytes[block])),
    }
  }

  private line(block: number): BlockLine {
    const { blocks } = this.now.picture
    const [allocatedAt, freedAt] = [blocks.allocatedAt[block], blocks.freeRequestedAt[block]]
    const group = this.colouring?.labelOf(this.colouring.group[block]) ?? ''
    return { block, bytes: blocks.bytes[block], allocatedAt, freedAt: freedAt === NEVER ? -1 : freedAt, group }
  }

  private info(block: number): BlockInfo {
    const { blocks, names, stacks, timeUs, policies } = this.now.picture
    const line = this.line(block)
    const { bytes, allocatedAt, freedAt } = line
    return {
      ...line,
      lifeUs: allocatedAt < 0 || freedAt < 0 ? null : timeUs[freedAt] - timeUs[allocatedAt],
      stream: names.stream[blocks.stream[block]],
      pool: names.pool[blocks.pool[block]],
      tag: names.tag[blocks.tag[block]],
      stack: stackLines(callsOf(linesOf(stacks, blocks.stack[block]), false)),
      addresses: policies.map(policy => ({ label: policy.label, text: placeText(policy, block, bytes) })),
    }
  }
}

/** The first event after each step. */
function endsOf({ steps }: Picture): number[] {
  return Array.from(steps, last => last + 1)
}

/** Where a policy put a block. */
function placeText(policy: PolicyPicture, block: number, bytes: number): string {
  if (policy.place === null) return 'addresses not kept'
  const runs = runsOf(policy, block, bytes)
  if (runs.length === 0) return policy.policy === 'recorded' ? 'not in the recording' : 'did not place it'
  const first = `0x${addressOf(policy, runs[0]).toString(16)}`
  return runs.length === 2 ? first : `${first}, and ${runs.length / 2 - 1} more places`
}

/** The lines of a stack, the innermost first; of a very deep one the innermost lines and the number of the others. */
function stackLines(frames: readonly PictureFrame[]): StackLine[] {
  const lines = frames.slice(0, MOST_LINES).map(frame => ({ text: callText(frame), path: pathOf(frame) }))
  return frames.length > MOST_LINES ? [...lines, { text: `… ${frames.length - MOST_LINES} more`, path: null }] : lines
}

function pathOf({ file, line }: PictureFrame): string | null {
  return /^(?:\/|[a-z]:[\\/])/i.test(file) ? `${file}:${Math.max(1, line)}` : null
}

/** Bytes of a gzip archive in base64. */
async function unpacked(packed: string): Promise<Uint8Array> {
  try {
    const text = atob(packed.trim())
    const bytes = new Uint8Array(text.length)
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i)
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'))
    return new Uint8Array(await new Response(stream).arrayBuffer())
  } catch {
    throw new FormatError('the data of this page is damaged; make the page again')
  }
}
