// Runs the programs that its arguments name one after another. A line with a null character precedes each output.

for (const path of process.argv.splice(2)) {
  console.log('\0')
  await import(path)
}
