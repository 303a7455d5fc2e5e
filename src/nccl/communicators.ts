import type { Clocks } from '../core/order/clocks.js'

/** A communicator, as its device keeps it. */
interface Member {
  /** names the world that it is a rank of */
  readonly world: string
  readonly rank: number
  /** only `end` is left */
  readonly hasFailed: boolean
  end(): void
}

/** All communicators of this thread that are open. */
const members = new Set<Member>()

/** The numbers of the ranks of a world that this thread has. */
export function ranksHere(world: string): number[] {
  return [...members].filter(member => member.world === world).map(({ rank }) => rank)
}

/** The communicators of a device, which end with it: the part of the device that this house keeps. */
export class Communicators {
  private readonly open = new Set<Member>()

  constructor(readonly clocks: Clocks) {}

  add(member: Member): void {
    this.open.add(member)
    members.add(member)
  }

  delete(member: Member): void {
    this.open.delete(member)
    members.delete(member)
  }

  /** Called by the device's close first: work of a communicator that has failed may never complete. */
  endLostWork(): void {
    for (const member of [...this.open]) if (member.hasFailed) member.end()
  }

  /** Called by the device's close, when the device has no work left. */
  close(): void {
    for (const member of [...this.open]) member.end()
  }
}
