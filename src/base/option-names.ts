import { describe } from './bytes.js'

/** Refuses, in the name of `call`, what is no object of options, or has one that is not among `names`; a TypeError says which. */
export function checkOptionNames(call: string, options: object, names: readonly string[]): void {
  if (typeof options !== 'object' || options === null || Array.isArray(options)) {
    throw new TypeError(`${call}: options must be an object such as { ${names[0]} }, not ${describe(options)}`)
  }
  for (const name of Object.keys(options)) {
    if (names.includes(name)) continue
    throw new TypeError(`${call}: unknown option '${name}'; the options are ${names.join(', ')}`)
  }
}
