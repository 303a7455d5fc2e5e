// `cuda-mempool completion`: scripts that complete commands and options in bash, zsh and fish, from commander's own
// tree. Other arguments are names of files, which the shells complete; libraries for this leave file names out.

import type { Command } from 'commander'

/** A word that completes a line, and what it means. */
type Word = readonly [text: string, about: string]

/** A command with the words after it; without choices its arguments are files. */
interface CommandWords {
  readonly name: string
  readonly about: string
  readonly options: readonly Word[]
  readonly choices: readonly Word[]
}

const SCRIPTS = { bash, zsh, fish }
export type Shell = keyof typeof SCRIPTS
export const SHELLS = Object.keys(SCRIPTS) as Shell[]

/** The script of a shell for the commands of a program. */
export function completionScript(shell: Shell, program: Command): string {
  const help = program.createHelp()
  const visible = help.visibleCommands(program)
  const names = visible.map((command): Word => [command.name(), command.description()])
  const optionsOf = (command: Command) =>
    help
      .visibleOptions(command)
      .flatMap(({ short, long, description }) =>
        [short, long].flatMap(text => (text ? [[text, description] as const] : [])),
      )
  const common = optionsOf(program)
  const commands = visible.map((command): CommandWords => {
    const own = [command, ...command.commands].flatMap(optionsOf)
    const all = [...own, ...common]
    const options = all.filter(([text], index) => all.findIndex(([other]) => other === text) === index)
    const choices = (command.registeredArguments[0]?.argChoices ?? []).map((choice): Word => [choice, ''])
    for (const each of command.commands) choices.push([each.name(), each.description()])
    return {
      name: command.name(),
      about: command.description(),
      options,
      choices: command.name() === 'help' ? names : choices,
    }
  })
  return SCRIPTS[shell](program.name(), commands, common)
}

function bash(program: string, commands: readonly CommandWords[], common: readonly Word[]): string {
  const texts = (words: readonly Word[]) => `'${words.map(([text]) => text).join(' ')}'`
  const names = commands.map(({ name, about }): Word => [name, about])
  const cases = commands.map(
    ({ name, options, choices }) => `    ${name}) options=${texts(options)} choices=${texts(choices)} ;;`,
  )
  return `_cuda_mempool() {
  local options=${texts(common)} choices=${texts(names)}
  if [ "$COMP_CWORD" -gt 1 ]; then case "\${COMP_WORDS[1]}" in
${cases.join('\n')}
    *) options='' choices='' ;;
  esac; fi
  case "$2" in -*) choices=$options ;; esac
  COMPREPLY=($(compgen -W "$choices" -- "$2"))
}
complete -o default -F _cuda_mempool ${program}`
}

function zsh(program: string, commands: readonly CommandWords[], common: readonly Word[]): string {
  const quoted = (text: string) => `'${text.replaceAll("'", "'\\''")}'`
  const described = (words: readonly Word[]) =>
    words.map(([text, about]) => quoted(about === '' ? text : `${text}:${about}`)).join(' ')
  const names = commands.map(({ name, about }): Word => [name, about])
  const cases = commands.map(
    ({ name, options, choices }) => `    ${name}) flags=(${described(options)}) choices=(${described(choices)}) ;;`,
  )
  return `#compdef ${program}
_cuda_mempool() {
  local -a flags=(${described(common)}) choices=(${described(names)})
  if (( CURRENT > 2 )); then case $words[2] in
${cases.join('\n')}
    *) flags=() choices=() ;;
  esac; fi
  if [[ $PREFIX == -* ]]; then _describe -o option flags
  elif (( $#choices )); then _describe word choices
  else _files; fi
}
compdef _cuda_mempool ${program}`
}

function fish(program: string, commands: readonly CommandWords[], common: readonly Word[]): string {
  const quoted = (text: string) => `'${text.replace(/['\\]/g, '\\$&')}'`
  const line = (when: string, [text, about]: Word) => {
    const what = text.startsWith('--')
      ? `-l ${text.slice(2)}`
      : text.startsWith('-')
        ? `-s ${text[1]}`
        : `-f -a ${text}`
    return `complete -c ${program} -n '${when}' ${what} -d ${quoted(about)}`
  }
  const first = '__fish_use_subcommand'
  return [
    ...[...commands.map(({ name, about }): Word => [name, about]), ...common].map(word => line(first, word)),
    ...commands.flatMap(({ name, options, choices }) =>
      [...options, ...choices].map(word => line(`__fish_seen_subcommand_from ${name}`, word)),
    ),
  ].join('\n')
}
