// Reads a line of JSON for each file, {seed, size, chunkSize, maxLinks}, and
// prints what ipfs-unixfs-importer makes of it: CID and size of the DAG. The
// bytes are the key stream of AES-256-CTR under the SHA-256 of the seed.
import { createCipheriv, createHash } from 'node:crypto'
import { createInterface } from 'node:readline'
import { importer } from 'ipfs-unixfs-importer'
import { fixedSize } from 'ipfs-unixfs-importer/chunker'
import { balanced } from 'ipfs-unixfs-importer/layout'

const nowhere = { put: async (cid) => cid }
const zeros = Buffer.alloc(1 << 20)

async function * bytes (seed, size) {
  const key = createHash('sha256').update(seed).digest()
  const stream = createCipheriv('aes-256-ctr', key, Buffer.alloc(16))
  for (let left = size; left > 0; left -= zeros.length) {
    yield stream.update(zeros.subarray(0, left))
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const { seed, size, chunkSize, maxLinks } = JSON.parse(line)
  const options = {
    cidVersion: 1,
    rawLeaves: true,
    chunker: fixedSize({ chunkSize }),
    layout: balanced({ maxChildrenPerNode: maxLinks })
  }
  for await (const file of importer([{ content: bytes(seed, size) }], nowhere, options)) {
    console.log(`${file.cid} ${file.size}`)
  }
}
