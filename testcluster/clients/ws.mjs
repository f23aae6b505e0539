import { randomBytes } from 'node:crypto';
import WebSocket from 'ws';
import { assert, check, eventually, once, sockets, url } from './check.mjs';

async function open(protocols) {
  const ws = new WebSocket(sockets, protocols);
  ws.on('error', (err) => { ws.failed = err; });
  await once(ws, 'open');
  return ws;
}

async function echo(ws, data, options) {
  const back = once(ws, 'message');
  ws.send(data, options);
  const [got, binary] = await back;
  return { got, binary };
}

async function close(ws, ...args) {
  const closed = once(ws, 'close');
  ws.close(...args);
  const [code, reason] = await closed;
  return { code, reason: reason.toString() };
}

const openSockets = async () => Number(await (await fetch(url + '/sockets')).text());

await check('handshake with a subprotocol', async () => {
  const ws = await open(['superchat', 'chat']);
  assert.equal(ws.protocol, 'chat');
  await close(ws);
});

await check('text and binary', async () => {
  const ws = await open();
  let { got, binary } = await echo(ws, 'grüße');
  assert.equal(got.toString(), 'grüße');
  assert.equal(binary, false);
  ({ got, binary } = await echo(ws, Buffer.from([0, 255, 1])));
  assert.deepEqual([...got], [0, 255, 1]);
  assert.equal(binary, true);
  await close(ws);
});

await check('messages of 1 MiB and more, whole and in fragments', async () => {
  const ws = await open();
  for (const size of [125, 126, 65535, 65536, 1 << 20, 5 << 20]) {
    const data = randomBytes(size);
    const { got } = await echo(ws, data);
    assert.ok(data.equals(got), `${size} bytes came back as ${got.length}`);
  }
  const data = randomBytes(1 << 20);
  const back = once(ws, 'message');
  for (let i = 0; i < 4; i++) ws.send(data.subarray(i << 18, (i + 1) << 18), { fin: i === 3, binary: true });
  assert.ok(data.equals((await back)[0]));
  await close(ws);
});

await check('1000 messages in order', async () => {
  const ws = await open();
  const got = [];
  const done = new Promise((all) => ws.on('message', (m) => got.push(m.toString()) === 1000 && all()));
  for (let i = 0; i < 1000; i++) ws.send(`message ${i}`);
  await done;
  assert.deepEqual(got, Array.from({ length: 1000 }, (_, i) => `message ${i}`));
  await close(ws);
});

await check('ping and pong, both ways', async () => {
  const ws = await open();
  const pong = once(ws, 'pong');
  ws.ping('hello');
  assert.equal((await pong)[0].toString(), 'hello');
  const { got } = await echo(ws, 'ping me');
  assert.equal(got.toString(), 'ponged are you there?');
  await close(ws);
});

await check("the client's close code comes back", async () => {
  const ws = await open();
  assert.deepEqual(await close(ws, 4001, 'bye'), { code: 4001, reason: 'bye' });
});

await check("the server's close code arrives", async () => {
  const ws = await open();
  const closed = once(ws, 'close');
  ws.send('close 4002 enough');
  const [code, reason] = await closed;
  assert.equal(code, 4002);
  assert.equal(reason.toString(), 'enough');
});

await check('a client that is gone frees its server', async () => {
  const all = await Promise.all(Array.from({ length: 10 }, () => open()));
  assert.equal(await openSockets(), 10);
  for (const ws of all) ws.terminate();
  await eventually(1000, async () => {
    const n = await openSockets();
    return n > 0 && `${n} are open`;
  });
});
