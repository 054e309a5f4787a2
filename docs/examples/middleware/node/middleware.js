// Seals a text over NATS, waits for its job, and looks it up again. It prints
// the job of each answer on a line of its own.
//
//   NATS_URL=nats://127.0.0.1:4222 TENANT=acme node middleware.js 'order 1017'
import { setTimeout as sleep } from "node:timers/promises";
import { connect } from "nats";

// A refusal. Its kind says what to do: "transient" is worth another try,
// "invalid" is a mistake in the request.
class Problem extends Error {
  constructor({ code, kind, message, retryAfterMs = 0 }) {
    super(`${code} (${kind}): ${message}`);
    Object.assign(this, { code, kind, retryAfterMs });
  }
}

// Sends a request and returns its answer. It tries again what is worth it, which
// is safe because the idempotency key stays the same.
async function ask(nc, subject, body) {
  for (let tries = 1; ; tries++) {
    try {
      // The server ends a request after 30 seconds.
      const reply = await nc.request(subject, JSON.stringify(body), { timeout: 35_000 });
      if (!reply.headers?.get("Verae-Problem")) return reply.json();
      throw new Problem(reply.json());
    } catch (err) {
      const refused = err instanceof Problem;
      if (tries === 5 || (refused && err.kind !== "transient")) throw err;
      await sleep(Math.max(1000, refused ? err.retryAfterMs : 0));
    }
  }
}

const [text] = process.argv.slice(2);
if (!text) throw new Error("usage: NATS_URL=... TENANT=... node middleware.js TEXT");
const tenantId = process.env.TENANT;
const nc = await connect({ servers: process.env.NATS_URL, name: "middleware" });
try {
  const job = await ask(nc, "verae.timestamp.submit", {
    tenantId,
    idempotencyKey: `example-node ${text}`, // a repetition gets the first answer
    wait: 10, // seconds; 0 answers as soon as it is accepted
    data: text,
    publicMetadata: { source: "middleware" },
    includeAttached: true,
  });
  console.log(JSON.stringify(job));
  if (job.status !== "completed") throw new Error(`the job is ${job.status}: look it up later`);
  const found = await ask(nc, "verae.timestamp.lookup", { tenantId, sha256: job.sha256 });
  console.log(JSON.stringify(found));
} finally {
  await nc.close();
}
