/** A device's UUID as nvidia-smi writes it behind 'GPU-'. */
export function uuidText(uuid: Uint8Array): string {
  return Buffer.from(uuid)
    .toString('hex')
    .replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5')
}
