import assert from 'node:assert/strict'
import { test } from 'node:test'
import { foreignKind } from '../../trace/formats/foreign-files.js'
import { framed } from './page-frame.js'

test('a page of this package is told from other web pages', () => {
  const template = '<!doctype html>\n<meta http-equiv="Content-Security-Policy" content="{{policy}}">'
  const page = framed(template, { title: '', style: '', data: '', script: '' })
  assert.match(foreignKind(Buffer.from(page))!, /^is a page; the recording/)
  assert.match(foreignKind(Buffer.from(template))!, /^is a web page/)
})
