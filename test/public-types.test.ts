// The types of the package: programs compile against them with every check, each name and member has a docstring, and
// completion offers the interface only.

import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'

import ts = require('typescript')

import { API_PAGE, apiPage, surfacesOf } from './api-page.js'
import { ENTRIES, publicTypes } from './public-types.js'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const project = mkdtempSync(join(ROOT, 'dist', 'types-'))
const installed = join(project, 'node_modules', 'cuda-mempool')
const entries = Object.values(ENTRIES).map(entry => join(installed, 'dist', 'src', entry))
after(() => rmSync(project, { recursive: true }))

const OPTIONS: ts.CompilerOptions = {
  noEmit: true,
  strict: true,
  exactOptionalPropertyTypes: true,
  skipLibCheck: false,
  module: ts.ModuleKind.NodeNext,
  target: ts.ScriptTarget.ES2022,
  lib: ['lib.es2023.d.ts', 'lib.esnext.disposable.d.ts'],
  types: ['node'],
  typeRoots: [join(ROOT, 'node_modules', '@types')],
}

/** Programs of users: the examples, and calls with objects of one kind as arguments of another. */
function programs(): string[] {
  const examples = readdirSync(join(ROOT, 'examples')).map(name => readFileSync(join(ROOT, 'examples', name), 'utf8'))
  const calls = `
    import { type Device, fallback, limited, MiB, openDevice, openDevices, type Pool, type Stream } from 'cuda-mempool'
    import type { Driver, PlainPool } from 'cuda-mempool/driver'
    import { createDeviceArena, createStreamArenas } from 'cuda-mempool/kernels'
    import { SimulatedDriver } from 'cuda-mempool/simulated'
    import { attachDevice } from 'cuda-mempool/threads'
    import { recorded, replay } from 'cuda-mempool/trace'
    using device: Device = openDevice(new SimulatedDriver({ capacityBytes: '1GiB' }))
    const [first, second] = openDevices('simulated')
    const pool = device.createPool({ maxPoolBytes: '50%' })
    pool.setAccess(second, 'readWrite')
    first.enablePeerAccess(second)
    const stream = device.createStream({ priority: -1 })
    const event = device.createEvent({ timing: true })
    event.record(stream)
    stream.wait(event)
    const floats: Float32Array = pool.upload(new Float32Array(4), stream).readSync()
    const graph = device.capture(stream, () => pool.allocate(4, stream))
    graph.launch(stream)
    graph.result.free()
    const plain: PlainPool = device.createPlainPool()
    const any: Pool = fallback(limited(recorded(pool), '1MiB'), plain)
    const driver: Driver = device.driver
    const arena = createDeviceArena(device, any.allocate(MiB, stream))
    createStreamArenas(device, { pool, bytes: '64KiB' })
    using host = device.createHostPool()
    host.allocate(16).copyTo(pool.allocate(16))
    using grown = device.createGrowableBuffer({ bytes: 0 })
    grown.array(Float32Array, 0).copyFrom(pool.allocateArray(Float32Array, 1))
    attachDevice(device.share())
    const owner: boolean = any.allocate(1).pool === any
    /** Hands its own optional arguments on. */
    async function later(bytes: number, stream?: Stream, signal?: AbortSignal) {
      await any.whenAvailable(bytes, { signal })
      return any.allocate(bytes, { stream })
    }
    void [floats, arena, owner, replay, driver, later]
  `
  return [...examples, calls]
}

/** All entry points and the programs of users; each test asks it. */
let program: ts.Program

describe('the types of the package', () => {
  before(() => {
    for (const [path, text] of publicTypes()) {
      const target = join(installed, 'dist', 'src', path)
      mkdirSync(dirname(target), { recursive: true })
      writeFileSync(target, text)
    }
    writeFileSync(join(installed, 'package.json'), readFileSync(join(ROOT, 'package.json')))
    writeFileSync(join(project, 'package.json'), '{ "type": "module" }')
    symlinkSync(join(ROOT, 'node_modules', '@types'), join(project, 'node_modules', '@types'))
    const users = programs().map((text, index) => {
      const path = join(project, `${index}.ts`)
      writeFileSync(path, text)
      return path
    })
    program = ts.createProgram([...users, ...entries], OPTIONS)
  })

  test('compile with every check, also in programs of users', () => {
    // Not of the files of others, which are most.
    const files = program.getSourceFiles().filter(({ fileName }) => fileName.startsWith(project))
    const found = [...program.getOptionsDiagnostics(), ...program.getGlobalDiagnostics()]
    for (const file of files) {
      found.push(...program.getSyntacticDiagnostics(file), ...program.getSemanticDiagnostics(file))
    }
    assert.ok(files.length > 100, `${files.length} files`)
    const errors = found.map(({ messageText, file, start }) => {
      const place =
        file === undefined ? '' : `${file.fileName}:${file.getLineAndCharacterOfPosition(start ?? 0).line + 1}`
      return `${place} ${ts.flattenDiagnosticMessageText(messageText, '\n')}`
    })
    assert.deepEqual(errors, [])
  })

  test('have a docstring for each exported name and each of its members', () => {
    const missing: string[] = []
    forEachExport((checker, name, symbol) => {
      if (!hasDocs(checker, symbol)) missing.push(name)
      const type = declaredType(checker, symbol)
      for (const member of type === undefined ? [] : checker.getPropertiesOfType(type)) {
        const isErrorName = member.name === 'name' && name.endsWith('Error') // JavaScript's own
        if (isOfPackage(member) && !isErrorName && !hasDocs(checker, member)) missing.push(`${name}.${member.name}`)
      }
    })
    assert.deepEqual(missing, [])
  })

  test('are what docs/api.md lists, each name at one entry point', () => {
    const page = readFileSync(API_PAGE, 'utf8')
    assert.equal(page, apiPage(program, entries), 'npm run docs:api writes the page anew')
    const names = surfacesOf(program, entries).flatMap(({ values, types }) => [...values, ...types])
    assert.deepEqual(
      names.filter((name, index) => names.indexOf(name) !== index),
      [],
    )
  })

  test('offer a class as a value only if programs make it themselves, catch it, or call its static functions', () => {
    const values = new Set(surfacesOf(program, entries).flatMap(surface => surface.values))
    const found: string[] = []
    let made = 0
    forEachExport((_, name, symbol) => {
      if (!values.has(name) || (symbol.flags & ts.SymbolFlags.Class) === 0) return
      made++
      const [making] = symbol.members?.get(ts.InternalSymbolName.Constructor)?.declarations ?? []
      const isOurs = making !== undefined && ts.getCombinedModifierFlags(making) & ts.ModifierFlags.Protected
      const hasStatics = [...(symbol.exports?.keys() ?? [])].some(each => each !== 'prototype')
      if (isOurs && !hasStatics) found.push(name)
    })
    assert.deepEqual(found, [], 'export these as types')
    assert.ok(made > 10, `${made} classes`)
  })

  test('mention no context of the driver', () => {
    assert.ok(![...publicTypes().keys()].some(path => path.endsWith('core/driver/context.d.ts')))
  })

  test('offer the interface only', () => {
    const internals = [
      'suspend',
      'resume',
      'abandon',
      'checkOpen',
      'slot',
      'lastStamp',
      'release',
      'records',
      'refuseStale',
    ]
    internals.push('announceUse', 'servesCaptures', 'caches', 'tag', 'rangeOf', 'checkPool', 'allocation', 'clocks')
    internals.push('context')
    const found: string[] = []
    let members = 0
    forEachExport((checker, name, symbol) => {
      const isPool = /^[A-Z]\w*Pool$/.test(name)
      if (!isPool && !['Stream', 'Event', 'DeviceBuffer', 'Device'].includes(name)) return
      for (const member of checker.getPropertiesOfType(declaredType(checker, symbol)!)) {
        members++
        const isInternal = internals.includes(member.name) || (isPool && member.name === 'recordUse')
        if (isInternal || (name === 'DeviceBuffer' && member.name === 'record')) found.push(`${name}.${member.name}`)
      }
    })
    assert.deepEqual(found, [])
    assert.ok(members > 100, `${members} members`)
  })
})

/** Calls `visit` for each export of the entry points, with the symbol behind it. */
function forEachExport(visit: (checker: ts.TypeChecker, name: string, symbol: ts.Symbol) => void): void {
  const checker = program.getTypeChecker()
  for (const path of entries) {
    for (const exported of checker.getExportsOfModule(checker.getSymbolAtLocation(program.getSourceFile(path)!)!)) {
      const isAlias = (exported.flags & ts.SymbolFlags.Alias) !== 0
      visit(checker, exported.name, isAlias ? checker.getAliasedSymbol(exported) : exported)
    }
  }
}

function declaredType(checker: ts.TypeChecker, symbol: ts.Symbol): ts.Type | undefined {
  const isType = (symbol.flags & (ts.SymbolFlags.Class | ts.SymbolFlags.Interface | ts.SymbolFlags.TypeAlias)) !== 0
  return isType ? checker.getDeclaredTypeOfSymbol(symbol) : undefined
}

/** Members of JavaScript's own types, and well-known symbols, need no docstring here. */
function isOfPackage(member: ts.Symbol): boolean {
  const ours = member.declarations?.some(declaration => declaration.getSourceFile().fileName.startsWith(installed))
  return ours === true && !member.name.startsWith('__@')
}

/** Whether hovering shows a text. An override shows that of the base class; CUDA's manual has its functions. */
function hasDocs(checker: ts.TypeChecker, symbol: ts.Symbol): boolean {
  if (/^cu[A-Z]/.test(symbol.name)) return true
  if (symbol.getDocumentationComment(checker).length > 0) return true
  const parent = symbol.declarations?.[0]?.parent
  if (parent === undefined || !ts.isClassLike(parent)) return false
  const bases = parent.heritageClauses?.flatMap(({ types }) => types.map(type => checker.getTypeAtLocation(type))) ?? []
  return bases.some(base => {
    const inherited = checker.getPropertyOfType(base, symbol.name)
    return inherited !== undefined && hasDocs(checker, inherited)
  })
}
