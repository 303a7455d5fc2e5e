// Answers the page's requests from unpacked pictures. It runs in the worker, and knows no DOM.

import { FormatError } from '../src/core/base/errors.js'
import { paintMap } from '../src/recordings/picture/address-map.js'
import type { Painting } from '../src/recordings/picture/cells.js'
import { decodePicture } from '../src/recordings/picture/codec/codec.js'
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
import { coloured } from '../src/recordings/picture/patterns.js'
import { addressOf, type Picture, type PolicyPicture, runsOf, unitsOf } from '../src/recordings/picture/picture.js'
import { Pyramid } from '../src/recordings/picture/pyramid.js'
import { answerOf, historyOf } from '../src/recordings/picture/questions.js'
import { findBlocks } from '../src/recordings/picture/stack-text.js'
import { bandAt, bandsOf, paintStacked, type StackedScale } from '../src/recordings/picture/stacked.js'
import { blocksLeft, leftBehind } from '../src/recordings/trace/analysis/steps.js'
import { Action } from '../src/recordings/trace/trace.js'
import { blockInfo, blockLine, mapPlace } from './block-info.js'
import type { BlockInfo, BlockSet, Outline, PlaceInfo, RecordingInfo, RequestName, Requests } from './protocol.js'

const MOST_ROWS = 200
const MOST_HISTORY = 60
/** Of a list: a browser draws these within a frame or two. */
const MOST_EVENTS = 1000
/** Of the lines that allocate in a range. */
const MOST_LINES_OF_RANGE = 3

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
      // A copy: the answer takes it away.
      timeUs: timeUs.slice(),
      allocations: blocks.count - blocks.initial,
      peakEvent: live.peakEvent,
      peakBytes: live.peakBytes,
      steps,
      failures: failuresIn(action),
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
    const { live, picture } = this.now
    const { event, bytes } = asked
    if (!('policy' in asked)) {
      const band = bandAt(live, event, bytes, asked)
      if (band === null) return null
      const isSmall = band.block < 0
      return { ...band, block: isSmall ? null : blockInfo(picture, this.colours, band.block), hole: null, isSmall }
    }
    return mapPlace(live, this.policy(asked.policy), this.colours, asked)
  }

  block({ block }: Requests['block']['asked']): BlockInfo | null {
    const { picture } = this.now
    return block < picture.blocks.count ? blockInfo(picture, this.colours, block) : null
  }

  holders({ set, ...options }: Requests['holders']['asked']): Requests['holders']['answer'] {
    const { picture, live } = this.now
    const colouring = this.colours
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
      icicle: icicleOf(picture, colouring, list, options),
      under: options.under,
    }
  }

  history({ block, first, policy }: Requests['history']['asked']): Requests['history']['answer'] {
    const { picture } = this.now
    const placed = this.policy(policy)
    const walked = historyOf(picture, placed, first)
    // Another policy may have put them at different addresses.
    const [of, found] = walked.includes(block) ? [first, walked] : [block, historyOf(picture, placed, block)]
    const own = found.indexOf(block)
    const from = Math.max(0, Math.min(own - MOST_HISTORY / 2, found.length - MOST_HISTORY))
    return {
      first: of,
      total: found.length,
      address: addressOf(placed, runsOf(placed, of, picture.blocks.bytes[of])[0]),
      rows: found.slice(from, from + MOST_HISTORY).map(each => blockLine(picture, this.colours, each)),
    }
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

  private get colours(): Colouring {
    if (this.colouring === null) throw new FormatError('no colours are chosen')
    return this.colouring
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
}

/** The events of failed requests. */
function failuresIn(action: Uint8Array): Int32Array {
  const failures: number[] = []
  for (let at = action.indexOf(Action.outOfMemory); at >= 0; at = action.indexOf(Action.outOfMemory, at + 1)) {
    failures.push(at)
  }
  return Int32Array.from(failures)
}

/** The first event after each step. */
function endsOf({ steps }: Picture): number[] {
  return Array.from(steps, last => last + 1)
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
