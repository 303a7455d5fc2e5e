// The kinds of frames of call stacks: lines of the program and of PyTorch, generated code, operators, and machinery
// that names nothing. All texts, pages and exports go by these kinds.

/**
 * The kinds, from machinery to lines of the program. The frame of the latest kind names a stack, and of several frames
 * of one kind the innermost.
 */
export const FrameKind = {
  /** Python's standard library, launchers, notebooks, debuggers, and lines of PyTorch that only pass a call on */
  launcher: 0,
  /** C++ without a name, or that captures stacks, allocates, dispatches, or runs Python */
  unnamed: 1,
  /** C++ of PyTorch that makes tensors for other operators, and its table of operators */
  plumbing: 2,
  /** autograd's engine, which runs backward operators on a thread of its own */
  engine: 3,
  /** an operator, or a library, in C++ */
  native: 4,
  /** C++ outside of PyTorch with a known line */
  nativeLine: 5,
  /** a backward operator of autograd */
  backward: 6,
  /** Python of PyTorch, or of Triton */
  pytorch: 7,
  /** Python that a compiler or a library wrote while the program ran */
  generated: 8,
  /** Python of another installed package */
  package: 9,
  /** Python, or JavaScript, of the program itself */
  program: 10,
} as const

/** One of the kinds, as a number. */
export type FrameKind = (typeof FrameKind)[keyof typeof FrameKind]

/** Whether a frame of this kind is left out of stacks that have one that says more. */
export function isMachinery(kind: FrameKind): boolean {
  return kind < FrameKind.native
}

/** Whether a frame of this kind is a site: a line outside of PyTorch. */
export function isSite(kind: FrameKind): boolean {
  return kind >= FrameKind.package
}

/** How much a frame of this kind says. The program and packages are alike, so that the inner one counts. */
export function rankOf(kind: FrameKind): number {
  return Math.min(kind, FrameKind.package)
}
