// A plugin of TypeDoc for exports that need no docstring of their own: functions named as the CUDA driver's, which
// CUDA's manual documents, and the names of error classes.

import { Comment, Converter, ReflectionKind } from 'typedoc'

/** @param {import('typedoc').Application} app */
export function load(app) {
  const say = (reflection, text) => {
    if (!reflection.hasComment()) reflection.comment = new Comment([{ kind: 'text', text }])
  }
  app.converter.on(Converter.EVENT_RESOLVE_BEGIN, ({ project }) => {
    for (const signature of project.getReflectionsByKind(ReflectionKind.CallSignature)) {
      if (/^cu[A-Z]/.test(signature.name)) say(signature, 'The function of the CUDA driver with this name.')
    }
    for (const property of project.getReflectionsByKind(ReflectionKind.Property)) {
      if (property.name === 'name' && property.parent?.name.endsWith('Error')) say(property, 'The name of the class.')
    }
  })
}
