/** Texts and their numbers, in the order of their first use; number 0 is the usual text. */
export class NameTable {
  readonly names: string[]
  private readonly numbers: Map<string, number>
  private last: string
  private lastNumber = 0

  constructor(usual: string) {
    this.names = [usual]
    this.numbers = new Map([[usual, 0]])
    this.last = usual
  }

  number(name: string): number {
    if (name === this.last) return this.lastNumber
    let number = this.numbers.get(name)
    if (number === undefined) {
      number = this.names.push(name) - 1
      this.numbers.set(name, number)
    }
    this.last = name
    this.lastNumber = number
    return number
  }
}
