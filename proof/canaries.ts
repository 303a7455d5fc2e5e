export type Rule = string
export function breakRule(_rule: Rule): () => void { return () => {} }
