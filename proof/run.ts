import { runProgram } from './program.js'
const [seed, programs, ops] = process.argv.slice(2).map(Number)
let ready=0, rec=0, take=0, grants=0, failures=0
const t0 = performance.now()
for (let s = seed; s < seed + programs; s++) {
  const o = runProgram(s, ops)
  ready+=o.ready; rec+=o.recognised; take+=o.takeovers; grants+=o.grants
  if (o.failure) { failures++; if (failures < 6) console.log(s, o.operations.length, o.failure.stack) }
}
console.log({failures, ready, rec, share: rec/ready, take, grants, opsPerSecond: programs*ops/(performance.now()-t0)*1000})
