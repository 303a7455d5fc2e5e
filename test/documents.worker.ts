// Runs the programs that its arguments name one after another, with a line of one null character before the output of each.

for (const path of process.argv.splice(2)) {
  console.log('\0')
  await import(path)
}
