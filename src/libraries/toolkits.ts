// Where the libraries and headers of a CUDA toolkit are looked for. Nothing here needs one: the driver alone does.

import { existsSync, readdirSync } from 'node:fs'

export type Environment = Readonly<Record<string, string | undefined>>

/** The folders of toolkits, in order: what CUDA_HOME and CUDA_PATH name, then those that are installed. */
export function toolkitFolders(env: Environment = process.env, installed = toolkitsIn('/usr/local')): string[] {
  return [...new Set([...named(env, 'CUDA_HOME', 'CUDA_PATH'), ...installed])]
}

/** Where such toolkits keep their libraries. */
export function libraryFolders(toolkits: readonly string[]): string[] {
  const target = process.arch === 'arm64' ? 'sbsa-linux' : 'x86_64-linux'
  return toolkits.flatMap(toolkit => [`${toolkit}/lib64`, `${toolkit}/targets/${target}/lib`])
}

/** Where such toolkits keep their headers, of those that have any. */
export function headerFolders(toolkits: readonly string[]): string[] {
  return toolkits.map(toolkit => `${toolkit}/include`).filter(folder => existsSync(`${folder}/cuda_runtime_api.h`))
}

/**
 * Where NVIDIA's Python packages keep their libraries (`nvidia/cu13/lib`, `nvidia/cuda_nvrtc/lib`), in the environment that
 * is active: VIRTUAL_ENV or CONDA_PREFIX, whose own `lib` counts, too.
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

/** `cuda` in a folder, then those with a version in their name, the newest first. */
export function toolkitsIn(folder: string): string[] {
  const names = namesIn(folder).filter(name => /^cuda-\d/.test(name))
  names.sort((a, b) => b.localeCompare(a, 'en', { numeric: true }))
  return ['cuda', ...names].map(name => `${folder}/${name}`)
}

function named(env: Environment, ...variables: readonly string[]): string[] {
  return variables.flatMap(variable => env[variable] || [])
}

/** What a folder holds; nothing where there is none. */
function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder)
  } catch {
    return []
  }
}
