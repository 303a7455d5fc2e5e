import { showAsText } from '../../base/readable.js'
import type { Span } from '../../heap/bump.js'

/** The part of an arena that its marks use. */
interface MarkedArena {
  isAtReset(times: number): boolean
}

/**
 * A height of an arena's stack, made by `arena.mark()`. It is valid until the arena is reset, or rewound to below it.
 */
export class ArenaMark {
  constructor(
    /** @internal */
    readonly arena: MarkedArena,
    /** @internal */
    readonly resets: number,
    /** @internal */
    readonly entry: number,
    /** @internal */
    readonly span: Span,
  ) {}

  /**
   * Whether the arena was rewound to below the mark.
   * @internal
   */
  get isRewound(): boolean {
    return this.entry > this.span.last
  }

  private get isStale(): boolean {
    return this.isRewound || !this.arena.isAtReset(this.resets)
  }

  /** One line for people, such as `ArenaMark { valid }`; console.log shows it. */
  toString(): string {
    return `ArenaMark { ${this.isStale ? 'stale' : 'valid'} }`
  }

  /** The plain values that JSON.stringify writes. */
  toJSON(): object {
    return { stale: this.isStale }
  }
}

showAsText(ArenaMark)
