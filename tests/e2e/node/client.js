// A client by npm's etcd3, unchanged. `node client.js ENDPOINTS STORY [ARGUMENT]...` says what happens, a line each.
'use strict';
const assert = require('assert');
const fs = require('fs');
const readline = require('readline');
const { once } = require('events');
const { Etcd3, EtcdLockFailedError, EtcdLeaseInvalidError, isRecoverableError } = require('etcd3');
const { ConsecutiveBreaker, ExponentialBackoff, circuitBreaker, handleWhen, isBrokenCircuitError, noop, retry } = require('cockatiel');

const [endpoints, story, ...args] = process.argv.slice(2);
const tls = process.env.TEST_TLS_CA;
const hosts = endpoints.split(',').map((e) => (e.includes('://') ? e : (tls ? 'https://' : 'http://') + e));
// As its manual advises for a cell of several: calls that fail for want of a replica are tried at the next one. With a password, but without a breaker for each
// host: when the call that tries a host again finds that a token has to be renewed, the client asks anew inside of that call, and at that host waits for itself.
const recoverable = (e) => isRecoverableError(e) || isBrokenCircuitError(e);
const policy = handleWhen(recoverable);
const client = new Etcd3({
  hosts,
  ...(tls ? { credentials: { rootCertificate: fs.readFileSync(tls), privateKey: fs.readFileSync(process.env.TEST_TLS_KEY),
    certChain: fs.readFileSync(process.env.TEST_TLS_CERT) } } : {}),
  ...(process.env.TEST_USER ? { auth: { username: process.env.TEST_USER, password: process.env.TEST_PASSWORD } } : {}),
  faultHandling: {
    host: () => (process.env.TEST_USER ? noop : circuitBreaker(policy, { halfOpenAfter: 200, breaker: new ConsecutiveBreaker(1) })),
    global: retry(policy, { maxAttempts: 30, backoff: new ExponentialBackoff({ initialDelay: 20, maxDelay: 200 }) }),
    watchBackoff: new ExponentialBackoff({ initialDelay: 20, maxDelay: 200 }),
  },
});

const say = (...words) => console.log(...words);
const words = readline.createInterface({ input: process.stdin });
const word = async () => (await once(words, 'line'))[0];
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
// For what may be repeated while the cell is between leaders.
const insist = async (f) => {
  for (;;) {
    try {
      return await f();
    } catch (e) {
      if (!recoverable(e)) throw e;
      await sleep(50);
    }
  }
};

const stories = {
  // Reads, writes, ranges, transactions, leases, checked here.
  async kv() {
    await client.put('k/a').value('1');
    await client.put('k/b').value('2');
    await client.put('k/c').value('3');
    assert.strictEqual(await client.get('k/a').string(), '1');
    assert.strictEqual(await client.get('none'), null);
    assert.deepStrictEqual(await client.getAll().prefix('k/').strings(), { 'k/a': '1', 'k/b': '2', 'k/c': '3' });
    assert.deepStrictEqual(await client.getAll().prefix('k/').sort('Key', 'Descend').limit(2).keys(), ['k/c', 'k/b']);
    assert.strictEqual(await client.getAll().prefix('k/').count(), 3);
    const before = (await client.getAll().prefix('k/').exec()).header.revision;
    const prev = await client.put('k/a').value('9').getPrevious();
    assert.strictEqual(prev.value.toString(), '1');
    assert.strictEqual(await client.get('k/a').revision(before).string(), '1');
    const done = await client.if('k/a', 'Value', '==', '9').and('k/b', 'Version', '==', 1)
      .then(client.put('k/b').value('8'), client.get('k/c')).else(client.get('k/b')).commit();
    assert(done.succeeded && done.responses[1].response_range.kvs[0].value.toString() === '3');
    assert.strictEqual((await client.delete().prefix('k/')).deleted, '3');
    const space = client.namespace('space/');
    await space.put('x').value('in');
    assert.strictEqual(await client.get('space/x').string(), 'in');

    const lease = client.lease(10);
    await lease.put('leased').value('yes');
    assert.strictEqual((await client.leaseClient.leaseTimeToLive({ ID: await lease.grant(), keys: true })).keys[0].toString(), 'leased');
    await lease.keepaliveOnce();
    await lease.revoke();
    assert.strictEqual(await client.get('leased').string(), null);
    await assert.rejects(client.put('x').value('').lease('12345'), EtcdLeaseInvalidError);
    const members = (await client.cluster.memberList({})).members;
    assert.strictEqual(members.length, hosts.length);
    assert((await client.maintenance.status()).leader !== '0');
    say('kv fine');
  },

  // Money moves between accounts; none is made or lost. (The client's stricter isolation refuses any key that changed after another that was read.)
  async stm() {
    for (let i = 0; i < 4; i++) await client.put(`account/${i}`).value(100);
    const move = async (n) => {
      for (let i = 0; i < 8; i++) {
        const from = `account/${(n + i) % 4}`, to = `account/${(n + i + 1 + (n % 3)) % 4}`;
        if (from === to) continue;
        await client.stm({ retries: 100, isolation: 1 /* serializable */ }).transact(async (tx) => {
          const a = await tx.get(from).number(), b = await tx.get(to).number();
          await tx.put(from).value(a - 5);
          await tx.put(to).value(b + 5);
        });
      }
    };
    await Promise.all([0, 1, 2, 3].map(move));
    const all = await client.getAll().prefix('account/').numbers();
    assert.strictEqual(Object.values(all).reduce((a, b) => a + b), 400);
    say('stm fine');
  },

  // The client's own lock, which is a key made only when there is none: refused while another has it.
  async lock() {
    const held = await client.lock('l').ttl(10).acquire();
    await assert.rejects(client.lock('l').acquire(), EtcdLockFailedError);
    await held.release();
    assert.strictEqual(await client.lock('l').do(async () => 'inside'), 'inside');
    assert.strictEqual(await client.getAll().count(), 0);
    say('lock fine');
  },

  // watch PREFIX REVISION: says every event. The client resumes by itself.
  async watch(prefix, revision) {
    let b = client.watch().prefix(prefix).withPreviousKV();
    if (+revision) b = b.startRevision(revision);
    const w = await b.create();
    say('watching');
    w.on('disconnected', () => say('disconnected'));
    w.on('connected', () => say('connected'));
    w.on('put', (kv, prev) => say('PUT', kv.key.toString(), kv.value.toString(), 'at', kv.mod_revision, prev ? 'was ' + prev.value : ''));
    w.on('delete', (kv) => say('DELETE', kv.key.toString(), 'at', kv.mod_revision));
    w.on('error', (e) => say('error', e.message));
    await word();
    await w.cancel();
    say('cancelled');
  },

  // lease TTL: a lease with a key, kept alive by the client.
  async lease(ttl) {
    const lease = client.lease(+ttl);
    lease.on('lost', (e) => say('lost', e.message));
    lease.on('keepaliveSucceeded', (r) => say('alive', r.TTL));
    await lease.put('alive').value('yes');
    say('lease', await lease.grant());
    await word();
  },

  // elect NAME VALUE: "proclaim VALUE", or any other line, which resigns. Its keys end in the lease in decimal.
  async elect(name, value) {
    const campaign = client.election(name, 10).campaign(value);
    campaign.on('error', (e) => say('error', e.message));
    await campaign.wait();
    const key = await campaign.getCampaignKey();
    say('held', (await client.get(key).exec()).kvs[0].create_revision, key);
    for (let w = await word(); w.startsWith('proclaim '); w = await word()) {
      await campaign.proclaim(w.slice(9));
      say('proclaimed');
    }
    await campaign.resign();
    say('released');
  },

  // turns NAME COUNTER BOOK: one of several who add to a counter under the client's lock, by a read and a write that would lose additions if two did so at once.
  // BOOK is a file that all write to: `in NAME` when the lock is held, `out NAME` before it is given back. Says `turn N` for an addition that was acknowledged,
  // `unsure N` for one whose answer did not come. Ends when BOOK.end is there.
  async turns(name, counter, book) {
    const key = 'lock of ' + counter;
    while (!fs.existsSync(book + '.end')) {
      const lock = client.lock(key).ttl(20);
      try {
        await lock.acquire();
      } catch (e) {
        if (!(e instanceof EtcdLockFailedError) && (await lock.leaseId().catch(() => null))) await insist(() => lock.release()); // it may be held
        await sleep(20);
        continue;
      }
      fs.appendFileSync(book, `in ${name}\n`);
      const lease = await lock.leaseId();
      const was = (await insist(() => client.get(counter).exec())).kvs[0];
      const n = was ? parseInt(was.value) + 1 : 1;
      try {
        // The client repeats a call that failed, also if it was carried out: then the counter has changed.
        const done = await client.if(key, 'Lease', '==', lease).and(counter, 'Mod', '==', was ? was.mod_revision : 0)
          .then(client.put(counter).value(`${n} ${name}`)).else(client.get(key)).commit();
        assert(done.succeeded || done.responses[0].response_range.kvs.some((kv) => kv.lease === lease), 'the lock was lost');
        say(done.succeeded ? 'turn' : 'unsure', n);
      } catch (e) {
        if (!recoverable(e)) throw e;
        say('unsure', n);
      }
      fs.appendFileSync(book, `out ${name}\n`);
      await insist(() => lock.release());
    }
  },

  async observe(name) {
    const observer = await client.election(name).observe();
    say('observing', observer.leader());
    observer.on('change', (leader) => say('leader', leader));
    observer.on('error', (e) => say('error', e.message));
    await word();
    await observer.cancel();
  },
};

stories[story](...args).then(() => {
  client.close();
  process.exit(0);
}, (e) => {
  say('broken:', e.stack);
  process.exit(1);
});
