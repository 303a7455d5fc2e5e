// The live page: one file that the build makes (viewer/live), which loads nothing.

import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { packageFile } from '../base/package-files.js'

/** The page, and the policy that lets a browser run its own script and style only. */
export interface LivePage {
  readonly html: string
  readonly policy: string
}

let page: LivePage | null = null

/** The page; null in a bundle, or a build without it. */
export function livePage(): LivePage | null {
  if (page !== null) return page
  let html: string
  try {
    html = readFileSync(packageFile('dist/viewer/live.html', 'the live page'), 'utf8')
  } catch {
    return null
  }
  page = { html, policy: policyOf(html) }
  return page
}

function policyOf(html: string): string {
  const hashes = (element: string) =>
    [...html.matchAll(new RegExp(`<${element}>([^]*?)</${element}>`, 'g'))]
      .map(match => `'sha256-${createHash('sha256').update(match[1]).digest('base64')}'`)
      .join(' ')
  return [
    "default-src 'none'",
    `script-src ${hashes('script')}`,
    `style-src ${hashes('style')}`,
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join('; ')
}
