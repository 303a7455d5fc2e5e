// A folder for sockets, and requests of a server, for the tests of this folder.

import { mkdtempSync, rmSync } from 'node:fs'
import { type IncomingHttpHeaders, request } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

/** Sets XDG_RUNTIME_DIR to a new folder; the returned function undoes that. */
export function ownRuntimeFolder(): { readonly folder: string; readonly restore: () => void } {
  const before = process.env['XDG_RUNTIME_DIR']
  const runtime = mkdtempSync(join(tmpdir(), 'cuda-mempool-live-'))
  process.env['XDG_RUNTIME_DIR'] = runtime
  const restore = () => {
    if (before === undefined) delete process.env['XDG_RUNTIME_DIR']
    else process.env['XDG_RUNTIME_DIR'] = before
    rmSync(runtime, { recursive: true, force: true })
  }
  return { folder: join(runtime, 'cuda-mempool'), restore }
}

export interface Answer {
  readonly status: number
  readonly headers: IncomingHttpHeaders
  readonly body: Buffer
}

/** The answer to a request, by socket or by port. */
export function ask(
  where: { readonly socketPath: string } | { readonly port: number },
  path: string,
  options: { readonly method?: string; readonly headers?: Record<string, string> } = {},
): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const asked = request({ ...where, path, agent: false, ...options }, async response => {
      const parts: Buffer[] = []
      for await (const part of response) parts.push(part)
      resolve({ status: response.statusCode!, headers: response.headers, body: Buffer.concat(parts) })
    })
    asked.on('error', reject)
    asked.end()
  })
}
