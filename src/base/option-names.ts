// The check of option names that all functions with options share.

import { describe } from './bytes.js'

/** Throws TypeError in the name of `call` unless `options` is an object with options among `names`. */
export function checkOptionNames(call: string, options: object, names: readonly string[]): void {
  if (typeof options !== 'object' || options === null || Array.isArray(options)) {
    throw new TypeError(`${call}: options must be an object such as { ${names[0]} }, not ${describe(options)}`)
  }
  for (const name of Object.keys(options)) {
    if (names.includes(name)) continue
    throw new TypeError(`${call}: unknown option '${name}'; the options are ${names.join(', ')}`)
  }
}
