// Refuses to pack while package.json does not name its repository: the registry's page would have no links and no
// picture. From `repository` npm itself derives `homepage` and `bugs`.
//   usage: node dist/bundle/publishable.js   CUDA_MEMPOOL_PACK=local packs for this computer without the check

import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

interface PackageJson {
  readonly repository?: string | { readonly url?: string }
}

/** Why others could not use the package, with the remedy; null if they can. */
export function refusalOf({ repository }: PackageJson): string | null {
  const url = typeof repository === 'string' ? repository : repository?.url
  if (url !== undefined && /^[\w+]+:.*\w+\/\w/.test(url) && !/\bOWNER\b/.test(url)) return null
  const found = url === undefined ? 'no repository' : `the repository ${JSON.stringify(url)}, which is no address`
  return (
    `package.json has ${found}: run npm pkg set repository=github:OWNER/cuda-mempool with the owner's name, ` +
    'or set CUDA_MEMPOOL_PACK=local to pack for this computer'
  )
}

if (process.argv[1] === fileURLToPath(import.meta.url) && process.env['CUDA_MEMPOOL_PACK'] !== 'local') {
  const text = readFileSync(new URL('../../package.json', import.meta.url), 'utf8')
  const missing = refusalOf(JSON.parse(text) as PackageJson)
  if (missing !== null) {
    console.error(missing)
    process.exitCode = 1
  }
}
