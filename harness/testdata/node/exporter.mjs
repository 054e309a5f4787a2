// Reads a line of JSON for each file, {cid, sha256, size}, and gets it from the
// server URL with the key API_KEY as ipfs-unixfs-exporter does: a block at a
// time, each held to its CID. It prints how many blocks each file had.
import { createHash } from 'node:crypto'
import { createInterface } from 'node:readline'
import { exporter } from 'ipfs-unixfs-exporter'

const { URL: server, API_KEY: key } = process.env
let blocks = 0

const gateway = {
  async * get (cid) {
    const response = await fetch(`${server}/ipfs/${cid}?format=raw`, { headers: { 'x-api-key': key } })
    if (response.status !== 200 || response.headers.get('content-type') !== 'application/vnd.ipld.raw') {
      throw new Error(`${cid}: ${response.status} ${response.headers.get('content-type')} ${await response.text()}`)
    }
    const bytes = new Uint8Array(await response.arrayBuffer())
    const digest = createHash('sha256').update(bytes).digest()
    if (!digest.equals(Buffer.from(cid.multihash.digest))) {
      throw new Error(`${cid}: other bytes came`)
    }
    blocks++
    yield bytes
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const { cid, sha256, size } = JSON.parse(line)
  blocks = 0
  const file = await exporter(cid, gateway)
  const hash = createHash('sha256')
  for await (const part of file.content()) {
    hash.update(part)
  }
  if (Number(file.size) !== size || hash.digest('hex') !== sha256) {
    throw new Error(`${cid}: another file of ${file.size} bytes`)
  }
  // A part in the middle, across a border of blocks.
  const offset = Math.floor(size / 3)
  let length = 0
  for await (const part of file.content({ offset, length: size - offset })) {
    length += part.length
  }
  if (length !== size - offset) {
    throw new Error(`${cid}: ${length} bytes from ${offset}`)
  }
  console.log(`${cid} ${blocks > 0}`)
}
