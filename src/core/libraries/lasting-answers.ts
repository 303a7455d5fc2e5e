// Answers to questions about other programs, which take time and may be asked by each of many failures in a row.

/** An answer serves for 50 times as long as it took, so that loops of failures spend at most 2 % on questions. */
export const SERVES_TIMES = 50

export class LastingAnswers<Answer> {
  private readonly answers = new Map<string, { readonly answer: Answer; readonly untilMs: number }>()

  constructor(
    private readonly ask: (about: string) => Answer,
    private readonly now: () => number = () => performance.now(),
  ) {}

  /** The answer, which may be an older one. */
  about(what: string): Answer {
    const startMs = this.now()
    const known = this.answers.get(what)
    if (known !== undefined && startMs < known.untilMs) return known.answer
    const answer = this.ask(what)
    const endMs = this.now()
    this.answers.set(what, { answer, untilMs: endMs + SERVES_TIMES * (endMs - startMs) })
    return answer
  }
}
