// Programs that upload to Kubo, against another address and with a key: what
// kubo-rpc-client and fetch get is printed, one JSON text a line.
// Arguments: the address, a key, and the size of the large file in bytes.
import { createCipheriv, createHash } from 'node:crypto'
import { create } from 'kubo-rpc-client'

const [url, key, size] = process.argv.slice(2)
const say = (name, value) => console.log(JSON.stringify({ name, value }))

// The same bytes as on the other side: see nodeFile.
function bytesOf (seed, size) {
  const cipher = createCipheriv('aes-256-ctr', createHash('sha256').update(seed).digest(), Buffer.alloc(16))
  return cipher.update(Buffer.alloc(size))
}

async function attempt (name, run) {
  try {
    say(name, await run())
  } catch (err) {
    say(name, { error: err.message })
  }
}

const added = ({ path, cid, size }) => ({ path, cid: cid.toString(), size })

async function all (source) {
  const parts = []
  for await (const part of source) parts.push(part)
  return Buffer.concat(parts)
}

const kubo = create({ url, headers: { 'x-api-key': key } })
const bearer = create({ url, headers: { authorization: `Bearer ${key}` } })
const large = bytesOf('large', Number(size))

await attempt('version', async () => (await kubo.version()).version)
await attempt('add', async () => added(await kubo.add({ path: 'a b.txt', content: new TextEncoder().encode('hello world') })))
await attempt('add without a name', async () => added(await bearer.add('hello world', { pin: true })))
await attempt('add large', async () => {
  let last = 0
  let calls = 0
  const progress = (bytes) => { last = bytes; calls++ }
  const one = added(await kubo.add({ path: 'large', content: large }, { cidVersion: 1, rawLeaves: true, chunker: 'size-262144', progress }))
  return { ...one, last, several: calls > 1 }
})
await attempt('add sealed', async () => added(await kubo.add('to be sealed', { seal: true })))
await attempt('trickle', async () => added(await kubo.add('hello world', { trickle: true })))
await attempt('cidVersion 0', async () => added(await kubo.add('hello world', { cidVersion: 0 })))
await attempt('two files', async () => {
  for await (const one of kubo.addAll([{ path: 'a', content: 'a' }, { path: 'b', content: 'b' }])) say('one of two', added(one))
})
await attempt('without a key', async () => added(await create({ url }).add('hello world')))
await attempt('pin', async () => (await kubo.pin.add('bafkreifzjut3te2nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e')).toString())

const hello = 'bafkreifzjut3te2nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e'
const digest = (bytes) => createHash('sha256').update(bytes).digest('hex')
await attempt('cat', async () => (await all(kubo.cat(hello))).toString())
await attempt('cat a part', async () => (await all(kubo.cat(`/ipfs/${hello}`, { offset: 6, length: 3 }))).toString())
await attempt('block', async () => Buffer.from(await kubo.block.get(hello)).toString())
await attempt('cat large', async () => {
  const { cid } = await kubo.add(large, { chunker: 'size-65536', onlyHash: false })
  return { cid: cid.toString(), same: digest(await all(kubo.cat(cid))) === digest(large), part: digest(await all(kubo.cat(cid, { offset: 65535, length: 65538 }))) === digest(large.subarray(65535, 65535 + 65538)) }
})
await attempt('cat nothing', async () => (await all(kubo.cat('bafkreiaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'))).toString())

await attempt('fetch', async () => {
  const form = new FormData()
  form.append('anything', new Blob([large], { type: 'application/pdf' }), 'scan 1.pdf')
  const response = await fetch(`${url}/api/v0/add`, { method: 'POST', body: form, headers: { 'x-api-key': key } })
  return { status: response.status, type: response.headers.get('content-type'), ...await response.json() }
})
await attempt('fetch from a page', async () => {
  const form = new FormData()
  form.append('file', new Blob(['x']), 'x')
  const response = await fetch(`${url}/api/v0/add`, { method: 'POST', body: form, headers: { 'x-api-key': key, origin: 'https://evil.example' } })
  return response.status
})
