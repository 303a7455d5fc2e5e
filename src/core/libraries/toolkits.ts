// Folders with the libraries and headers of CUDA toolkits, for NVRTC, NVTX and the compiler of kernels. Pools need
// the driver only, and no toolkit.

import { existsSync, readdirSync } from 'node:fs'

/** Environment variables. */
export type Environment = Readonly<Record<string, string | undefined>>

/** The folders of toolkits, in order: CUDA_HOME and CUDA_PATH, then installed toolkits. */
export function toolkitFolders(env: Environment = process.env, installed = toolkitsIn('/usr/local')): string[] {
  return [...new Set([...named(env, 'CUDA_HOME', 'CUDA_PATH'), ...installed])]
}

/** The library folders of toolkits. */
export function libraryFolders(toolkits: readonly string[]): string[] {
  const target = process.arch === 'arm64' ? 'sbsa-linux' : 'x86_64-linux'
  return toolkits.flatMap(toolkit => [`${toolkit}/lib64`, `${toolkit}/targets/${target}/lib`])
}

/** The header folders of toolkits, for toolkits with headers. */
export function headerFolders(toolkits: readonly string[]): string[] {
  return toolkits.map(toolkit => `${toolkit}/include`).filter(folder => existsSync(`${folder}/cuda_runtime_api.h`))
}

/**
 * The library folders of NVIDIA's Python packages (`nvidia/cu13/lib`, `nvidia/cuda_nvrtc/lib`) in the active
 * environment, VIRTUAL_ENV or CONDA_PREFIX, and the `lib` of that environment.
 */
export function pythonLibraryFolders(env: Environment = process.env): string[] {
  return named(env, 'VIRTUAL_ENV', 'CONDA_PREFIX').flatMap(root => {
    const packages = namesIn(`${root}/lib`)
      .filter(name => name.startsWith('python3'))
      .flatMap(python => {
        const nvidia = `${root}/lib/${python}/site-packages/nvidia`
        return namesIn(nvidia).map(name => `${nvidia}/${name}/lib`)
      })
    return [`${root}/lib`, ...packages.filter(folder => existsSync(folder))]
  })
}

/** Toolkits in a folder: `cuda`, then names with a version, newest first. */
export function toolkitsIn(folder: string): string[] {
  const names = namesIn(folder).filter(name => /^cuda-\d/.test(name))
  names.sort((a, b) => b.localeCompare(a, 'en', { numeric: true }))
  return ['cuda', ...names].map(name => `${folder}/${name}`)
}

function named(env: Environment, ...variables: readonly string[]): string[] {
  return variables.flatMap(variable => env[variable] || [])
}

/** The names in a folder; none if the folder does not exist. */
function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder)
  } catch {
    return []
  }
}
