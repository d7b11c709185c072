// A client by @grpc/grpc-js alone, with our own protos as they are installed. `node protos.js ENDPOINTS PROTODIR STORY [ARGUMENT]...` says what happens, a line each.
// Under TLS and as a user, when TEST_TLS_CA, _CERT and _KEY, TEST_USER and TEST_PASSWORD say so.
'use strict';
const assert = require('assert');
const fs = require('fs');
const readline = require('readline');
const { once } = require('events');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');

const [endpoints, protodir, story, ...args] = process.argv.slice(2);
const options = { keepCase: true, longs: String, enums: String, defaults: true, oneofs: true, includeDirs: [protodir] };
const load = (file) => grpc.loadPackageDefinition(loader.loadSync(file, options));
const { Auth, KV, Lease, Watch } = load('etcd/rpc.proto').etcdserverpb;
const { Lock } = load('etcd/v3lock.proto').v3lockpb;
const { Locks } = load('holdfast/v1.proto').holdfast.v1;
const say = (...words) => console.log(...words);
const words = readline.createInterface({ input: process.stdin });
const word = async () => (await once(words, 'line'))[0];
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const env = process.env;
const credentials = env.TEST_TLS_CA
  ? grpc.credentials.createSsl(...[env.TEST_TLS_CA, env.TEST_TLS_KEY, env.TEST_TLS_CERT].map((path) => fs.readFileSync(path)))
  : grpc.credentials.createInsecure();
const metadata = new grpc.Metadata();
const hosts = endpoints.split(',').map((e) => e.replace(/^https?:\/\//, ''));
const stubs = new Map();
const stub = (Service, i) => {
  const all = stubs.get(Service) || hosts.map((host) => new Service(host, credentials, { 'grpc.initial_reconnect_backoff_ms': 100, 'grpc.max_reconnect_backoff_ms': 300 }));
  stubs.set(Service, all);
  return all[i];
};
const ask = (service, method, request) =>
  new Promise((resolve, reject) => service[method](request, metadata, (err, reply) => (err ? reject(err) : resolve(reply))));
const logIn = async (i) => {
  metadata.set('token', (await ask(stub(Auth, i), 'Authenticate', { name: env.TEST_USER, password: env.TEST_PASSWORD })).token);
};

let at = Math.floor(Math.random() * hosts.length); // the replica that is asked: that which answered last
const gone = async (e) => {
  if (e.code === grpc.status.UNAUTHENTICATED && env.TEST_USER) return logIn(at).catch(() => {}); // a replica that was restarted knows no tokens
  if (e.code !== grpc.status.UNAVAILABLE) throw e;
  at = (at + 1) % hosts.length;
};
// For what may be repeated while the cell is between leaders.
const insist = async (Service, method, request) => {
  for (;;) {
    try {
      return await ask(stub(Service, at), method, request);
    } catch (e) {
      await gone(e);
      await sleep(20);
    }
  }
};

const stories = {
  // A lock, its hand-over and a watch; the number of a replica that lives on is told by a line on standard input.
  async all() {
    const kv = stub(KV, 0);
    const put = await ask(kv, 'Put', { key: Buffer.from('a'), value: Buffer.from('b') });
    assert.strictEqual((await ask(kv, 'Range', { key: Buffer.from('a') })).kvs[0].value.toString(), 'b');

    const watch = stub(Watch, 1).Watch(metadata);
    const events = [];
    watch.on('data', (r) => r.events.forEach((e) => events.push(e.kv.value.toString())));
    watch.on('error', () => {});
    watch.write({ create_request: { key: Buffer.from('a'), start_revision: put.header.revision } });

    const leases = await Promise.all([1, 2].map(() => ask(stub(Lease, 2), 'LeaseGrant', { TTL: '60' })));
    const held = await ask(stub(Lock, 0), 'Lock', { name: Buffer.from('l'), lease: leases[0].ID });
    const refused = await ask(stub(Lock, 1), 'Lock', { name: Buffer.from('l'), lease: leases[1].ID, wait_ms: '0' }).catch((e) => e);
    assert.strictEqual(refused.code, grpc.status.FAILED_PRECONDITION, refused);
    assert((await ask(stub(Locks, 2), 'Verify', { name: Buffer.from('l'), fencing_token: held.fencing_token })).current);
    say('held');

    const survivor = Number(await word());
    const next = ask(stub(Lock, survivor), 'Lock', { name: Buffer.from('l'), lease: leases[1].ID });
    await ask(stub(Lock, survivor), 'Unlock', { key: held.key, fencing_token: held.fencing_token });
    assert(BigInt((await next).fencing_token) > BigInt(held.fencing_token));
    await ask(stub(KV, survivor), 'Put', { key: Buffer.from('a'), value: Buffer.from('c') });
    assert.strictEqual((await ask(stub(KV, survivor), 'Range', { key: Buffer.from('a') })).kvs[0].value.toString(), 'c');
    assert.deepStrictEqual(events.slice(0, 1), ['b']);
    say('all fine');
  },

  // turns NAME COUNTER BOOK: as in client.js, under the Lock service.
  async turns(name, counter, book) {
    const key = Buffer.from(counter);
    const lease = (await insist(Lease, 'LeaseGrant', { TTL: '120' })).ID;
    while (!fs.existsSync(book + '.end')) {
      const held = await insist(Lock, 'Lock', { name: Buffer.from('lock of ' + counter), lease });
      fs.appendFileSync(book, `in ${name}\n`);
      const was = (await insist(KV, 'Range', { key })).kvs[0];
      const n = was ? parseInt(was.value) + 1 : 1;
      try {
        const done = await ask(stub(KV, at), 'Txn', {
          compare: [{ key: held.key, target: 'CREATE', result: 'EQUAL', create_revision: held.fencing_token }],
          success: [{ request_put: { key, value: Buffer.from(`${n} ${name}`) } }],
        });
        assert(done.succeeded, 'the lock was lost');
        say('turn', n);
      } catch (e) {
        await gone(e);
        say('unsure', n);
      }
      fs.appendFileSync(book, `out ${name}\n`);
      await insist(Lock, 'Unlock', { key: held.key, fencing_token: held.fencing_token });
    }
  },
};

(async () => {
  if (env.TEST_USER) await logIn(0);
  await stories[story](...args);
  process.exit(0);
})().catch((e) => {
  say('failed', e.stack || e);
  process.exit(1);
});
