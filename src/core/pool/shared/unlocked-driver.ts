import type { Driver } from '../../driver/driver.js'

/** A lock that is held around everything but driver calls. */
interface Section {
  acquire(): void
  release(): void
}

/**
 * The driver for code that works under a lock of many threads: each call is made without the lock. After every call,
 * other threads may have changed the data.
 */
export class UnlockedDriver {
  private section: Section | null = null
  readonly driver: Driver

  constructor(driver: Driver) {
    const calls = new Map<string | symbol, unknown>()
    this.driver = new Proxy(driver, {
      get: (target, name) => {
        const value: unknown = Reflect.get(target, name)
        if (typeof value !== 'function') return value
        const known = calls.get(name)
        if (known !== undefined) return known
        const call = (...args: unknown[]): unknown => this.outside(() => Reflect.apply(value, target, args))
        calls.set(name, call)
        return call
      },
    })
  }

  /** Runs `work` within a section. */
  within<R>(section: Section, work: () => R): R {
    section.acquire()
    this.section = section
    try {
      return work()
    } finally {
      this.section = null
      section.release()
    }
  }

  private outside<R>(call: () => R): R {
    const { section } = this
    if (section === null) return call()
    this.section = null
    section.release()
    try {
      return call()
    } finally {
      section.acquire()
      this.section = section
    }
  }
}
