// A client by @grpc/grpc-js alone, with our own protos as they are installed. `node protos.js ENDPOINTS PROTODIR` says what happens, a line each.
// Under TLS and as a user, when TEST_TLS_CA, _CERT and _KEY, TEST_USER and TEST_PASSWORD say so.
'use strict';
const assert = require('assert');
const fs = require('fs');
const readline = require('readline');
const { once } = require('events');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');

const [endpoints, protodir] = process.argv.slice(2);
const options = { keepCase: true, longs: String, enums: String, defaults: true, oneofs: true, includeDirs: [protodir] };
const load = (file) => grpc.loadPackageDefinition(loader.loadSync(file, options));
const { Auth, KV, Lease, Watch } = load('etcd/rpc.proto').etcdserverpb;
const { Lock } = load('etcd/v3lock.proto').v3lockpb;
const { Locks } = load('holdfast/v1.proto').holdfast.v1;
const say = (...words) => console.log(...words);
const words = readline.createInterface({ input: process.stdin });
const word = async () => (await once(words, 'line'))[0];

const at = (i) => endpoints.split(',')[i];
const env = process.env;
const credentials = env.TEST_TLS_CA
  ? grpc.credentials.createSsl(...[env.TEST_TLS_CA, env.TEST_TLS_KEY, env.TEST_TLS_CERT].map((path) => fs.readFileSync(path)))
  : grpc.credentials.createInsecure();
const metadata = new grpc.Metadata();
const stub = (Service, i) => new Service(at(i).replace(/^https?:\/\//, ''), credentials);
const ask = (service, method, request) =>
  new Promise((resolve, reject) => service[method](request, metadata, (err, reply) => (err ? reject(err) : resolve(reply))));

(async () => {
  if (env.TEST_USER)
    metadata.set('token', (await ask(stub(Auth, 0), 'Authenticate', { name: env.TEST_USER, password: env.TEST_PASSWORD })).token);
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
  process.exit(0);
})().catch((e) => {
  say('failed', e.stack || e);
  process.exit(1);
});
